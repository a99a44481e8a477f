//! A pseudo-terminal with a command on it, and a parser for its screen.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    mem::{MaybeUninit, zeroed},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitStatus},
    ptr::{null, null_mut},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use limiter_tests::process;
use vt100::{Color, Parser, Screen};

/// How long an expected text may take to appear.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a user reads after pressing a key.
const READING: Duration = Duration::from_millis(400);

/// A byte that no program writes and that has no effect.
const END: u8 = 0;

/// The output of the command so far.
struct Received {
    parser: Parser,
    bytes: usize,
    /// Whether [`END`] was received.
    has_ended: bool,
}

/// A terminal that runs a command.
pub(super) struct Terminal {
    master: File,
    slave: OwnedFd,
    /// Its modes before the command was started, which changes them at once.
    before: Modes,
    child: Child,
    received: Arc<Mutex<Received>>,
    reader: Option<JoinHandle<()>>,
}

/// The termios flags (echo and others) of a terminal: input, output, control and local.
type Modes = [libc::tcflag_t; 4];

fn modes_of(terminal: &OwnedFd) -> Modes {
    let mut modes = MaybeUninit::uninit();
    // SAFETY: there is memory for the result.
    let modes = unsafe {
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr()), 0);
        modes.assume_init()
    };
    [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag]
}

impl Terminal {
    /// Starts a command on a new terminal of this size, which becomes its controlling terminal. One
    /// that says 0 columns and rows has 80 and 24.
    pub(super) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let (mut master, mut slave) = (-1, -1);
        let size = size(columns, rows);
        // SAFETY: there is memory for both results and a size; without a name and settings.
        let opened = unsafe {
            libc::openpty(&raw mut master, &raw mut slave, null_mut(), null(), &raw const size)
        };
        assert_eq!(opened, 0);
        // SAFETY: the call gave both descriptors to us alone.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let before = modes_of(&slave);
        let [input, output, errors] = [(); 3].map(|()| slave.try_clone().unwrap());
        command.stdin(input).stdout(output).stderr(errors);
        // SAFETY: between fork and exec it makes system calls and nothing else.
        unsafe { command.pre_exec(take_terminal) };
        let child = command.spawn().unwrap();
        let or = |size: u16, other| if size == 0 { other } else { size };
        let parser = Parser::new(or(rows, 24), or(columns, 80), 0);
        let received = Received { parser, bytes: 0, has_ended: false };
        let received = Arc::new(Mutex::new(received));
        let reader = thread::spawn({
            let (mut master, received) = (master.try_clone().unwrap(), received.clone());
            move || {
                let mut bytes = [0; 4096];
                // Reading ends with an error when no process has the terminal any more.
                while let Ok(count @ 1..) = master.read(&mut bytes) {
                    let mut received = received.lock().unwrap();
                    received.parser.process(&bytes[..count]);
                    received.bytes += count;
                    received.has_ended |= bytes[..count].contains(&END);
                }
            }
        });
        Self { master, slave, before, child, received, reader: Some(reader) }
    }

    /// Sends keys, each followed by the time to read its effect.
    pub(super) fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.write(key);
            thread::sleep(READING);
        }
    }

    /// Answers a question after the time to read it.
    pub(super) fn confirm(&mut self, question: &str) {
        self.wait_for(question);
        thread::sleep(READING);
        self.press(&["y"]);
    }

    /// Sends bytes, as keys or as pasted text.
    pub(super) fn write(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Changes the size of the terminal.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = size(columns, rows);
        self.received.lock().unwrap().parser.screen_mut().set_size(rows, columns);
        // SAFETY: the size is there for the call.
        let set =
            unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(set, 0);
    }

    /// The text on the screen, without blanks at the ends of lines.
    pub(super) fn text(&self) -> String {
        let contents = self.look(Screen::contents);
        contents.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Waits until the text on the screen fits, and returns it.
    #[track_caller]
    pub(super) fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if is_there(&text) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "{what} is not on the screen:\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the terminal is in a state. Its modes may change a moment later than its text.
    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            let (taken, modes) = (self.is_taken(), self.modes());
            assert!(start.elapsed() < PATIENCE, "{what}: {taken:?} {modes:?}\n{}", self.text());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `words` are on the screen, and returns its text.
    #[track_caller]
    pub(super) fn wait_for(&self, words: &str) -> String {
        self.wait(words, |text| text.contains(words))
    }

    /// The number of bytes received.
    pub(super) fn bytes(&self) -> usize {
        self.received.lock().unwrap().bytes
    }

    /// Whether any cell has a colour.
    pub(super) fn has_colour(&self) -> bool {
        self.look(|screen| {
            let (rows, columns) = screen.size();
            let mut places = (0..rows).flat_map(|row| (0..columns).map(move |at| (row, at)));
            places.any(|(row, column)| {
                screen.cell(row, column).is_some_and(|cell| cell.fgcolor() != Color::Default)
            })
        })
    }

    /// Whether the command uses the alternate screen, hides the cursor, and has switched on bracketed paste.
    pub(super) fn is_taken(&self) -> [bool; 3] {
        self.look(|screen| {
            [screen.alternate_screen(), screen.hide_cursor(), screen.bracketed_paste()]
        })
    }

    /// Its modes now.
    pub(super) fn modes(&self) -> Modes {
        modes_of(&self.slave)
    }

    /// Its modes before the command was started.
    pub(super) const fn modes_before(&self) -> Modes {
        self.before
    }

    /// Sends a signal to the command.
    pub(super) fn signal(&self, signal: libc::c_int) {
        process::signal(&self.child, signal);
    }

    /// Sends a signal to the child of the command, which is a shell.
    pub(super) fn signal_job(&self, signal: libc::c_int) {
        let shell = self.child.id();
        let jobs = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        let job: libc::pid_t = jobs.trim().parse().unwrap();
        // SAFETY: the call has no pointers, and the shell has not yet waited for its only child.
        assert_eq!(unsafe { libc::kill(job, signal) }, 0);
    }

    /// Waits until the command has ended and all its output was read.
    pub(super) fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        // The last output has been written but maybe not read, so a byte is sent after it.
        // SAFETY: a buffer of that length, and a descriptor that is open.
        let written = unsafe { libc::write(self.slave.as_raw_fd(), [END].as_ptr().cast(), 1) };
        assert_eq!(written, 1);
        self.wait_until("its end", |terminal| terminal.received.lock().unwrap().has_ended);
        status
    }

    fn look<T>(&self, at: impl FnOnce(&Screen) -> T) -> T {
        at(self.received.lock().unwrap().parser.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        process::kill(&mut self.child);
        // The reader ends when the other end has no open descriptor.
        let null = File::open("/dev/null").map(OwnedFd::from);
        if let (Ok(null), Some(reader)) = (null, self.reader.take()) {
            drop(std::mem::replace(&mut self.slave, null));
            let _ = reader.join();
        }
    }
}

fn size(columns: u16, rows: u16) -> libc::winsize {
    // SAFETY: plain old data, for which zeros are valid.
    let size: libc::winsize = unsafe { zeroed() };
    libc::winsize { ws_row: rows, ws_col: columns, ..size }
}

/// Makes standard input the controlling terminal of this process.
fn take_terminal() -> io::Result<()> {
    // SAFETY: calls without pointers.
    let taken = unsafe { libc::setsid() != -1 && libc::ioctl(0, libc::TIOCSCTTY, 0) != -1 };
    if taken { Ok(()) } else { Err(io::Error::last_os_error()) }
}
