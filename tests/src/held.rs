//! A command that is held at a system call, so that a test can act at that moment, or end the command there.

use std::{
    io::{self, Read},
    mem::zeroed,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    command::{LimiterCommand, Outcome},
    process::kill,
};

/// How long a command may take until it makes the call, or ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A system call, told by its number and by words of its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    number: libc::c_long,
    /// The place of an argument, and its lower half.
    arguments: &'static [(u32, u32)],
}

impl Call {
    /// `bpf(BPF_LINK_CREATE)`: a program is attached to an interface.
    pub const LINK_CREATE: Self = Self { number: libc::SYS_bpf, arguments: &[(0, 28)] };
    /// `bpf(BPF_LINK_UPDATE)`: another program is put behind a link.
    pub const LINK_UPDATE: Self = Self { number: libc::SYS_bpf, arguments: &[(0, 29)] };
    /// A map is mapped into memory to be written, as the head is for each store of a word.
    pub const MAP_TO_WRITE: Self = Self {
        number: libc::SYS_mmap,
        arguments: &[
            (2, (libc::PROT_READ | libc::PROT_WRITE) as u32),
            (3, libc::MAP_SHARED as u32),
        ],
    };

    /// A filter that asks the listener about this call, and allows all others.
    fn filter(self) -> Vec<libc::sock_filter> {
        /// Where `seccomp_data` has the arguments; their lower halves come first.
        const ARGUMENTS: u32 = 16;
        let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let words = self.arguments.iter().map(|(place, word)| (ARGUMENTS + 8 * place, *word));
        let words: Vec<_> = [(0, self.number as u32)].into_iter().chain(words).collect();
        let mut filter = Vec::new();
        for (number, (offset, word)) in words.iter().enumerate() {
            // Past the other comparisons, and what asks.
            let other = 2 * (words.len() - number - 1) + 1;
            filter.push(step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, *offset));
            filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, other as u8, *word));
        }
        filter.push(step(libc::BPF_RET, 0, libc::SECCOMP_RET_USER_NOTIF));
        filter.push(step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW));
        filter
    }
}

/// What becomes of the call that a command is held at.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// It is made.
    GoOn,
    /// It fails with this error number.
    Fail(i32),
}

impl LimiterCommand {
    /// Starts the command, which is held at each call of a kind from then on, and waits until it makes the first one.
    ///
    /// # Errors
    /// Fails if the command cannot be run, or ends without the call.
    pub fn held_at(self, call: Call) -> Result<Held> {
        let line = self.line();
        Held::start(self.command, line, call)
    }
}

/// A command that is held at each call of a kind. It is killed when this is dropped.
#[derive(Debug)]
pub struct Held {
    line: String,
    process: Child,
    listener: OwnedFd,
    /// The number of the call that waits for an answer.
    waiting: Option<u64>,
}

impl Held {
    /// Starts a command, which messages name by this line, and waits until it makes the call.
    ///
    /// # Errors
    /// Fails if the command cannot be run, or ends without the call.
    fn start(mut command: Command, line: String, call: Call) -> Result<Self> {
        /// The number that the listener has in the command.
        const LISTENER: RawFd = 200;
        let filter = call.filter();
        let hold = move || {
            // A command that is held waits for good once nobody listens, as it has the listener itself.
            // SAFETY: the call has no pointers.
            if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
                return Err(io::Error::last_os_error());
            }
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            // SAFETY: the program outlives the call, and has as many steps as it says.
            let listener = unsafe {
                libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                    &raw const program,
                )
            };
            // SAFETY: the call has no pointers. The copy stays open over exec.
            if listener < 0 || unsafe { libc::dup2(listener as RawFd, LISTENER) } < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: between fork and exec it only makes system calls.
        unsafe { command.pre_exec(hold) };
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("cannot run {line}"))?;
        let listener = taken(process.id(), LISTENER)
            .inspect_err(|_| kill(&mut process))
            .with_context(|| format!("cannot listen to {line}"))?;
        let mut held = Self { line, process, listener, waiting: None };
        held.wait()?;
        ensure!(held.waiting.is_some(), "{} ended without the call", held.line);
        Ok(held)
    }

    /// The command.
    #[must_use]
    pub const fn process(&self) -> &Child {
        &self.process
    }

    /// Answers the call, and waits until the command makes another one, or ends.
    ///
    /// # Errors
    /// Fails if the call cannot be answered, or the command takes too long.
    pub fn answer(&mut self, answer: Answer) -> Result<()> {
        let id = self.waiting.take().with_context(|| format!("{} has ended", self.line))?;
        let (error, flags) = match answer {
            Answer::GoOn => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Fail(error) => (-error, 0),
        };
        let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
        let send = libc::SECCOMP_IOCTL_NOTIF_SEND;
        // SAFETY: the structure that the call reads.
        let sent = unsafe { libc::ioctl(self.listener.as_raw_fd(), send, &raw mut response) };
        if sent < 0 {
            return Err(io::Error::last_os_error()).context("cannot answer a call");
        }
        self.wait()
    }

    /// Answers this call and all that follow, and returns how the command ended.
    ///
    /// # Errors
    /// As for [`answer`](Self::answer), and if the command is ended by a signal, or writes output that is not UTF-8.
    pub fn finish(mut self, answer: Answer) -> Result<Outcome> {
        while self.waiting.is_some() {
            self.answer(answer)?;
        }
        let line = self.line.clone();
        let code = self.process.wait()?.code();
        let code = code.with_context(|| format!("{line} was ended by a signal"))?;
        let stdout = text(self.process.stdout.take())?;
        Ok(Outcome { line, code, stdout, stderr: text(self.process.stderr.take())? })
    }

    /// Waits until the command makes the call, or ends.
    fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.process.try_wait()?.is_none() {
            let mut poll =
                libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure, which the call reads and writes.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 10) };
            if ready > 0 && poll.revents & libc::POLLIN != 0 {
                // SAFETY: plain old data, for which zeros are valid; the kernel asks for them.
                let mut call: libc::seccomp_notif = unsafe { zeroed() };
                let receive = libc::SECCOMP_IOCTL_NOTIF_RECV;
                // SAFETY: the structure that the call fills in.
                let got = unsafe { libc::ioctl(self.listener.as_raw_fd(), receive, &raw mut call) };
                // It was killed meanwhile if this fails.
                if got == 0 {
                    self.waiting = Some(call.id);
                    return Ok(());
                }
            }
            if begun.elapsed() > PATIENCE {
                bail!("{} neither makes the call nor ends", self.line);
            }
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        kill(&mut self.process);
    }
}

/// All that is left in a pipe of a process.
fn text(pipe: Option<impl Read>) -> Result<String> {
    Ok(pipe.map_or(Ok(String::new()), io::read_to_string)?)
}

/// A copy of a descriptor of another process.
fn taken(process: u32, descriptor: RawFd) -> io::Result<OwnedFd> {
    let owned = |result| {
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded and gave a new descriptor to this process alone.
        Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
    };
    // SAFETY: the call has no pointers.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })?;
    // SAFETY: the same.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) })
}
