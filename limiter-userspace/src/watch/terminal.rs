//! The terminal, while a screen is drawn on it.

use std::{io, mem::ManuallyDrop, panic, thread};

use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode, size},
};
use ratatui::{
    DefaultTerminal, Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, layout::Rect,
};

use super::{
    controls::Drawn,
    screen,
    stop::{Who, stop},
    view::View,
};

/// A terminal in raw mode, with an alternate screen. It is restored when this is dropped, and
/// before the message of a panic.
#[derive(Debug)]
pub(super) struct Screen {
    /// Never dropped: it would report on standard error that the cursor could not be shown, and that
    /// would panic if the terminal is gone.
    terminal: ManuallyDrop<DefaultTerminal>,
    /// The area of the picture.
    area: Rect,
    /// Whether the shell has the terminal. Nothing is written to it then.
    is_left: bool,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            earlier(panic);
        }));
        let new = || {
            let area = area()?;
            let options = TerminalOptions { viewport: Viewport::Fixed(area) };
            let terminal = Terminal::with_options(CrosstermBackend::new(io::stdout()), options)?;
            Ok((ManuallyDrop::new(terminal), area))
        };
        let (terminal, area) = take_over().and_then(|()| new()).inspect_err(|_| restore())?;
        Ok(Self { terminal, area, is_left: false })
    }

    /// Gives the terminal back to the shell and stops the process. The terminal is taken over again
    /// on SIGCONT, not here: a process that is to end in the background would be stopped by that.
    pub(super) fn leave(&mut self, who: Who) -> io::Result<()> {
        let _ = self.terminal.show_cursor();
        restore();
        self.is_left = true;
        stop(who)
    }

    /// Whether the shell has the terminal.
    pub(super) const fn is_left(&self) -> bool {
        self.is_left
    }

    /// Takes over the terminal again, which another program may have used meanwhile.
    pub(super) fn again(&mut self) -> io::Result<()> {
        self.is_left = false;
        // crossterm takes the terminal to be in raw mode still, and would not set it.
        disable_raw_mode()?;
        take_over()?;
        self.clear()
    }

    /// Draws a watch. Returns the size of its tables on the screen.
    pub(super) fn draw(&mut self, view: &View) -> io::Result<Drawn> {
        let area = area()?;
        if area != self.area {
            self.terminal.resize(area)?;
            self.area = area;
        }
        let mut drawn = Drawn::default();
        self.terminal.draw(|frame| {
            drawn = screen::render(view, frame.area(), frame.buffer_mut());
        })?;
        Ok(drawn)
    }

    /// Clears the terminal, so that the next picture is drawn as a whole.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // Without a question for the cursor position, which the terminal may not answer.
        execute!(io::stdout(), Clear(ClearType::All))?;
        // The next picture is compared with an empty one, not with the latest.
        self.terminal.swap_buffers();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let _ = self.terminal.show_cursor();
        // A panic has restored the terminal already; doing so again would overwrite its message.
        if !thread::panicking() {
            restore();
        }
    }
}

/// The whole of the terminal. Serial consoles and terminals in containers may not know their size
/// and say 0: they count as 80 columns and 24 rows, as for other programs.
fn area() -> io::Result<Rect> {
    let (columns, rows) = size()?;
    let or = |size: u16, default| if size == 0 { default } else { size };
    Ok(Rect::new(0, 0, or(columns, 80), or(rows, 24)))
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    // Pasted text then comes as such, and not as keys.
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)
}

/// Restores the terminal. An error is ignored: the terminal is then gone, and its user with it.
fn restore() {
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    let _ = ratatui::try_restore();
}
