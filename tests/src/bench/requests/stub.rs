//! A server that answers each question at once, and so tells what the machine and those who ask add to the figures of the bridge.

use std::{
    fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net,
    runtime::Builder,
};

use super::server::{Folder, Scheduled, Scheduling};

/// Where it answers.
pub(super) const SOCKET: &str = "stub.sock";
/// The fields that the bridge answers with, too.
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\
    ratelimit-policy: \"known\";q=1000000;w=1\r\nratelimit: \"known\";r=999999;t=1\r\n\r\n";

/// A thread on the CPU that its maker had. It ends with the process.
pub(super) struct Stub(PathBuf);

impl Stub {
    /// Starts one that answers in this folder.
    pub(super) fn start(folder: &Folder) -> Result<Self> {
        let listener = UnixListener::bind(folder.path(SOCKET)).context("cannot start the stub")?;
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            // Whoever made it waits for this.
            let _: Result<_, _> = tell.send(fs::read_link("/proc/thread-self"));
            runtime.block_on(serve(listener))
        });
        let thread = told.recv().context("the stub ended")?;
        let thread = thread.context("cannot find the thread of the stub in /proc")?;
        Ok(Self(Path::new("/proc").join(thread).join("schedstat")))
    }
}

impl Scheduling for Stub {
    fn scheduled(&self) -> Result<Scheduled> {
        Scheduled::read(&self.0)
    }
}

async fn serve(listener: UnixListener) -> Result<()> {
    let listener = net::UnixListener::from_std(listener)?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut asked = Vec::new();
            // A question is a head without a body, and the next one waits for the answer.
            while stream.read_buf(&mut asked).await? > 0 {
                if asked.ends_with(b"\r\n\r\n") {
                    asked.clear();
                    stream.write_all(ANSWER).await?;
                }
            }
            anyhow::Ok(())
        });
    }
}
