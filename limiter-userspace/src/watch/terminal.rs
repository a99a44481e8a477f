//! The terminal while a screen is on it.

use std::{io, mem::ManuallyDrop, panic, thread};

use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{DefaultTerminal, Terminal, backend::CrosstermBackend};

use super::{
    controls::Drawn,
    screen,
    stop::{Who, stop},
    view::View,
};

/// A terminal in raw mode with a screen of its own. It is put back when this is dropped, and before
/// the message of a panic.
#[derive(Debug)]
pub(super) struct Screen {
    /// Never dropped: it would report on standard error that the cursor could not be shown, which
    /// ends in a panic when the terminal is gone.
    terminal: ManuallyDrop<DefaultTerminal>,
    /// Whether the shell has the terminal: nothing is written to it then.
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
        let new = || Terminal::new(CrosstermBackend::new(io::stdout()));
        let terminal = take_over().and_then(|()| new()).inspect_err(|_| restore())?;
        Ok(Self { terminal: ManuallyDrop::new(terminal), is_left: false })
    }

    /// Gives the terminal back to the shell and stops. It is for the signal of its end to take it over
    /// again: whoever is to end in the background would be stopped by that.
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

    /// Takes over the terminal again, which somebody else may have had meanwhile.
    pub(super) fn again(&mut self) -> io::Result<()> {
        self.is_left = false;
        // It is in raw mode as far as is known here, and would not be put into it.
        disable_raw_mode()?;
        take_over()?;
        self.clear()
    }

    /// Draws a watch, and says how much of it there was room for.
    pub(super) fn draw(&mut self, view: &View) -> io::Result<Drawn> {
        let mut drawn = Drawn::default();
        self.terminal.draw(|frame| {
            drawn = screen::render(view, frame.area(), frame.buffer_mut());
        })?;
        Ok(drawn)
    }

    /// Forgets what is on it, so that all of it is drawn anew.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // The terminal is not asked where its cursor is: it may not answer.
        execute!(io::stdout(), Clear(ClearType::All))?;
        // What was drawn last is not what the next picture is compared with.
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
        // A panic has put the rest back already; a second time would write over its message.
        if !thread::panicking() {
            restore();
        }
    }
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    // What is pasted comes as such, and not as keys.
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)
}

/// A terminal that cannot be put back is gone, and with it the one who would read of it.
fn restore() {
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    let _ = ratatui::try_restore();
}
