//! The terminal while a screen is on it.

use std::{io, mem::ManuallyDrop, panic, thread};

use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{EnterAlternateScreen, enable_raw_mode},
};
use ratatui::{DefaultTerminal, Terminal, backend::CrosstermBackend};

use super::{controls::Drawn, screen, view::View};

/// A terminal in raw mode with a screen of its own. It is put back when this is dropped, and before
/// the message of a panic.
#[derive(Debug)]
pub(super) struct Screen {
    /// Never dropped: it would report on standard error that the cursor could not be shown, which
    /// ends in a panic when the terminal is gone.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            earlier(panic);
        }));
        take_over().inspect_err(|_| restore())
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
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        // A panic has put the rest back already; a second time would write over its message.
        if !thread::panicking() {
            restore();
        }
    }
}

fn take_over() -> io::Result<Screen> {
    enable_raw_mode()?;
    // What is pasted comes as such, and not as keys.
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
    let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    Ok(Screen { terminal: ManuallyDrop::new(terminal) })
}

/// A terminal that cannot be put back is gone, and with it the one who would read of it.
fn restore() {
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    let _ = ratatui::try_restore();
}
