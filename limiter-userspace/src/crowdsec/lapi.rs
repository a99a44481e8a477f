//! Asks the local API of CrowdSec (LAPI) for its stream of decisions, now and again.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{
    Method, StatusCode, Uri,
    body::Bytes,
    header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT},
};
use thiserror::Error;
use tokio::{
    sync::{Notify, mpsc::Sender},
    task::spawn_blocking,
    time::timeout,
};

use super::answer::{Answer, AnswerError};
use crate::{
    bridge::client::{Client, ClientError, Endpoint, accepted},
    error::Failure,
    policy::units::printable,
};

/// How often LAPI is asked unless something else is said.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// The shortest interval, and the longest one.
pub const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3600)];

/// After this time, LAPI is asked for all decisions again: a decision that is made in the moment between its look at the
/// decisions and its note of the time is in no answer about changes.
const WHOLE: Duration = Duration::from_secs(3600);
/// How long an answer may take. LAPI takes some seconds for a long list.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest answer, in bytes: some 250,000 decisions.
const LONGEST: usize = 64 << 20;
/// The most bytes of a key file.
const KEY: u64 = 4096;
/// Rights of a key file that would let others than its owner and group read it, or others than its owner change it.
const OPEN: u32 = 0o027;
/// The header that has the key.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// LAPI takes a name and a version, with one slash.
const AGENT: &str = concat!("limiter/", env!("CARGO_PKG_VERSION"));

/// How LAPI is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it answers.
    pub url: Url,
    /// The file with the key of this bouncer. It is read each time, so that a new key needs no restart.
    pub key_file: PathBuf,
    /// The time between two questions, within [`INTERVALS`].
    pub interval: Duration,
}

/// The URL of a LAPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    endpoint: Endpoint,
    /// The value of the header `Host`.
    authority: String,
    /// What comes before the paths of LAPI, without a slash at its end.
    base: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.base)
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "give a URL such as http://127.0.0.1:8080".to_owned();
        let uri: Uri = text.parse().map_err(|_| form())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("the agent speaks no TLS: give the http:// URL of a LAPI on this host, or of a proxy on this host \
                            that speaks TLS to the LAPI"
                    .to_owned());
            }
            _ => return Err(form()),
        }
        let authority = uri.authority().ok_or_else(form)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err("a URL with a user or a query is not taken; the key is in the file of --crowdsec-key-file".to_owned());
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(form());
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => 80,
            None => return Err(form()),
        };
        let endpoint = Endpoint::Tcp { host: host.to_owned(), port };
        let base = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { endpoint, authority: authority.to_string(), base })
    }
}

/// Why decisions are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LapiError {
    /// The file with the key cannot be used.
    #[error("decisions of CrowdSec are not followed: the key in {} cannot be used: {cause}", .file.display())]
    KeyFile {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: String,
    },
    /// The key is not taken.
    #[error("decisions of CrowdSec are not followed: {url} does not take the key in {}", .file.display())]
    Key {
        /// The LAPI.
        url: String,
        /// The file.
        file: PathBuf,
    },
    /// There is no answer that can be used.
    #[error("decisions of CrowdSec are not followed: {url}: {cause}")]
    Answer {
        /// The LAPI.
        url: String,
        /// Why.
        cause: String,
    },
}

impl Failure for LapiError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::KeyFile { file, .. } => format!(
                "`cscli bouncers add NAME -o raw` prints a key; the file is to have it, and to belong to the user or the group of the \
                 agent: `chmod 640 {}`",
                file.display()
            ),
            Self::Key { .. } => "`cscli bouncers list` shows the bouncers, and `cscli bouncers add NAME -o raw` makes a key".to_owned(),
            Self::Answer { .. } => "see `cscli lapi status` there; bans that are in force stay until their time is over".to_owned(),
        })
    }
}

/// An answer, and whether it has all decisions that are in force.
#[derive(Debug)]
pub struct Pulled {
    /// The answer.
    pub answer: Answer,
    /// Whether it has all, and not what changed since the one before.
    pub is_whole: bool,
    /// When it came.
    pub at: Instant,
}

/// Asks as long as somebody takes the results, of which each `wake`s whoever does. The next question is asked after a result was
/// taken, for all decisions if it is to begin `anew`: then at once.
pub async fn follow(
    options: Options,
    results: Sender<Result<Pulled, LapiError>>,
    wake: Arc<Notify>,
    anew: Arc<Notify>,
) {
    let mut last_whole: Option<Instant> = None;
    loop {
        let is_whole = last_whole.is_none_or(|last| last.elapsed() >= WHOLE);
        let begun = Instant::now();
        let answer = pull(&options, is_whole).await;
        // What an answer that was lost had changed is in no other one.
        match &answer {
            Ok(_) if is_whole => last_whole = Some(begun),
            Ok(_) => {}
            Err(_) => last_whole = None,
        }
        let result = answer.map(|answer| Pulled { answer, is_whole, at: Instant::now() });
        if results.send(result).await.is_err() {
            return;
        }
        wake.notify_one();
        if timeout(options.interval, anew.notified()).await.is_ok() {
            last_whole = None;
        }
    }
}

/// Asks for the decisions in force, or for what changed since this key was used last.
async fn pull(options: &Options, is_whole: bool) -> Result<Answer, LapiError> {
    let Options { url, key_file: file, .. } = options;
    let unread = |cause: String| LapiError::KeyFile { file: file.clone(), cause };
    let key = read_key(file).map_err(unread)?;
    let failed = |cause: String| LapiError::Answer { url: url.to_string(), cause };
    let host = HeaderValue::from_str(&url.authority).map_err(|error| failed(error.to_string()))?;
    let client = Client::of(url.endpoint.clone(), host)
        .with_header(KEY_HEADER, key)
        .with_header(USER_AGENT, HeaderValue::from_static(AGENT))
        .with_header(ACCEPT, HeaderValue::from_static("application/json"))
        .with_longest(LONGEST);
    let target = format!("{}/v1/decisions/stream?startup={is_whole}&scopes=ip,range", url.base);
    let asked = client.ask(Method::GET, &target, Bytes::new(), PATIENCE).await;
    let body = match asked.and_then(accepted) {
        Ok(body) => body,
        Err(ClientError::Refused {
            status: StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED,
            ..
        }) => {
            return Err(LapiError::Key { url: url.to_string(), file: file.clone() });
        }
        Err(error) => return Err(failed(printable(&error.to_string(), 300))),
    };
    // A long list takes a while, and the agent does more than this.
    match spawn_blocking(move || Answer::read(&body)).await {
        Ok(read) => read.map_err(|error: AnswerError| failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// The key in a file, as the value of a header that nobody prints.
fn read_key(file: &PathBuf) -> Result<HeaderValue, String> {
    let told = |error: io::Error| error.to_string();
    // A pipe would be waited for.
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file).map_err(told)?;
    let metadata = opened.metadata().map_err(told)?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if metadata.mode() & OPEN != 0 {
        return Err(format!(
            "its mode is {:04o}, by which others may read or change it",
            metadata.mode() & 0o7777
        ));
    }
    let mut text = String::new();
    opened.take(KEY + 1).read_to_string(&mut text).map_err(told)?;
    let key = text.trim();
    let is_key =
        !key.is_empty() && text.len() as u64 <= KEY && key.bytes().all(|it| it.is_ascii_graphic());
    if !is_key {
        return Err("it has no key, which is one word".to_owned());
    }
    let mut key = HeaderValue::from_str(key).map_err(|_| "it has no key".to_owned())?;
    key.set_sensitive(true);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        net::TcpListener,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::Path,
        process, thread,
    };

    use tokio::{runtime, sync::mpsc::channel};

    use super::*;

    /// A folder that is removed with this.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("limiter-lapi-{}-{name}", process::id()));
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn key(&self, text: &str, mode: u32) -> PathBuf {
            let file = self.0.join("key");
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_url_is_of_plain_http() {
        for (text, endpoint, told) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/crowdsec/", "[::1]:8080", "http://[::1]:8080/crowdsec"),
            ("http://lapi", "lapi:80", "http://lapi"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(
                (url.endpoint.to_string(), url.to_string()),
                (endpoint.to_owned(), told.to_owned())
            );
        }
        for (text, why) in [
            ("", "give a URL"),
            ("127.0.0.1:8080", "give a URL"),
            ("/etc", "give a URL"),
            ("ftp://127.0.0.1", "give a URL"),
            ("http://", "give a URL"),
            ("http://127.0.0.1:99999", "give a URL"),
            ("http://127.0.0.1:", "give a URL"),
            ("https://127.0.0.1:8080", "speaks no TLS"),
            ("http://user:word@127.0.0.1:8080", "--crowdsec-key-file"),
            ("http://127.0.0.1:8080/?key=7", "--crowdsec-key-file"),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_key_is_one_word_of_a_file_that_is_closed_to_others() {
        let folder = Folder::new("key");
        for mode in [0o600, 0o400, 0o640, 0o440] {
            let key = read_key(&folder.key(" 0123abc\n", mode)).unwrap();
            assert_eq!(key, "0123abc");
            assert_eq!(format!("{key:?}"), "Sensitive");
            fs::remove_file(folder.0.join("key")).unwrap();
        }
        for mode in [0o644, 0o660, 0o604, 0o602] {
            let error = read_key(&folder.key("0123abc", mode)).unwrap_err();
            assert!(error.contains(&format!("{mode:04o}")), "{error}");
        }
        let long = "x".repeat(5000);
        for text in ["", " \n", "two words", "ключ", "a\u{7f}b", &long] {
            let error = read_key(&folder.key(text, 0o600)).unwrap_err();
            assert!(error.contains("no key"), "{error}");
            assert!(text.trim().is_empty() || !error.contains(text.trim()), "{error}");
        }
        let none = |name: &str| read_key(&folder.0.join(name)).unwrap_err();
        assert!(none("").contains("regular file"));
        assert!(none("other").contains("No such file"));
        symlink(folder.key("0123abc", 0o600), folder.0.join("link")).unwrap();
        read_key(&folder.0.join("link")).unwrap();
    }

    /// A server that gives each connection the next of these answers, and then ends. Returns the requests.
    fn served(answers: Vec<Vec<u8>>) -> (u16, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let answer = |answer: Vec<u8>| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                // Whoever asked may have had enough of it.
                let _ = stream.write_all(&answer);
                String::from_utf8(request).unwrap()
            };
            answers.into_iter().map(answer).collect()
        });
        (port, server)
    }

    fn ok(body: &str) -> Vec<u8> {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    }

    /// What becomes of so many questions to a server at this port.
    fn asked(port: u16, key_file: &Path, count: usize) -> Vec<Result<Pulled, LapiError>> {
        let url = format!("http://127.0.0.1:{port}").parse().unwrap();
        let options = Options { url, key_file: key_file.to_owned(), interval: Duration::ZERO };
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (sender, mut results) = channel(1);
            tokio::spawn(follow(options, sender, Arc::default(), Arc::default()));
            let mut all = Vec::new();
            for _ in 0..count {
                all.push(results.recv().await.unwrap());
            }
            all
        })
    }

    const NOTHING: &str = r#"{"new":null,"deleted":null}"#;

    #[test]
    fn all_decisions_are_asked_for_at_once_where_it_is_to_begin_anew() {
        let folder = Folder::new("anew");
        let (port, server) = served(vec![ok(NOTHING), ok(NOTHING)]);
        let options = Options {
            url: format!("http://127.0.0.1:{port}").parse().unwrap(),
            key_file: folder.key("0123abc", 0o600),
            interval: INTERVALS[1],
        };
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let ((sender, mut results), anew) = (channel(1), Arc::new(Notify::new()));
            tokio::spawn(follow(options, sender, Arc::default(), Arc::clone(&anew)));
            for _ in 0..2 {
                assert!(results.recv().await.unwrap().unwrap().is_whole);
                anew.notify_one();
            }
        });
        server.join().unwrap();
    }

    #[test]
    fn after_a_failure_all_decisions_are_asked_for_again() {
        let folder = Folder::new("follow");
        let key = folder.key("0123abc", 0o600);
        let answers = vec![
            ok(NOTHING),
            ok(NOTHING),
            b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nwhy\n".to_vec(),
            ok(NOTHING),
            ok(NOTHING),
            // The answer breaks off.
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{".to_vec(),
            ok("{}"),
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec(),
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
            b"SSH-2.0-OpenSSH\r\n".to_vec(),
            ok(NOTHING),
        ];
        let count = answers.len();
        let (port, server) = served(answers);
        let results = asked(port, &key, count);
        let requests = server.join().unwrap();
        let whole: Vec<bool> = requests.iter().map(|it| it.contains("?startup=true&")).collect();
        assert_eq!(
            whole,
            [true, false, false, true, false, false, true, true, true, true, true],
            "{requests:#?}"
        );
        for request in &requests {
            let request = request.to_ascii_lowercase();
            for line in [
                "&scopes=ip,range http/1.1\r\n",
                "\r\nx-api-key: 0123abc\r\n",
                &format!("\r\nhost: 127.0.0.1:{port}\r\n"),
                &format!("\r\nuser-agent: {AGENT}\r\n"),
            ] {
                assert!(request.contains(line), "{line}: {request}");
            }
        }
        let told: Vec<String> =
            results.iter().filter_map(|it| it.as_ref().err()).map(ToString::to_string).collect();
        for (told, words) in told.iter().zip([
            "500 Internal Server Error: why",
            "broke off",
            "missing field",
            "does not take the key in",
            "longer than 64 MiB",
            "broke off",
        ]) {
            assert!(told.contains(words) && !told.contains("0123abc"), "{words}: {told}");
        }
        assert_eq!(told.len(), 6);
        for (result, whole) in results.iter().zip(whole) {
            assert!(result.as_ref().is_ok_and(|it| it.is_whole == whole) || result.is_err());
        }
    }

    #[test]
    fn a_lapi_that_is_away_or_a_key_that_is_gone_is_told() {
        let folder = Folder::new("away");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let told = asked(port, &folder.key("0123abc", 0o600), 1).remove(0).unwrap_err();
        let words = format!(
            "http://127.0.0.1:{port}: nobody answers at 127.0.0.1:{port}: Connection refused"
        );
        assert!(told.to_string().contains(&words), "{told}");
        assert!(told.remedy().unwrap().contains("cscli lapi status"));
        let told = asked(port, &folder.0.join("none"), 1).remove(0).unwrap_err();
        assert!(matches!(told, LapiError::KeyFile { .. }), "{told}");
        assert!(told.remedy().unwrap().contains("cscli bouncers add"));
    }
}
