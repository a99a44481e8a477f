//! The terminal while a screen is on it.

use std::{io, mem::ManuallyDrop, panic, thread};

use crossterm::{
    event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, enable_raw_mode},
};
use ratatui::{DefaultTerminal, Terminal, backend::CrosstermBackend};

use super::{screen, view::View};

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

    /// Draws a watch.
    pub(super) fn draw(&mut self, view: &View) -> io::Result<()> {
        self.terminal.draw(|frame| screen::render(view, frame.area(), frame.buffer_mut()))?;
        Ok(())
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
    execute!(io::stdout(), EnterAlternateScreen)?;
    let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    Ok(Screen { terminal: ManuallyDrop::new(terminal) })
}

/// A terminal that cannot be put back is gone, and with it the one who would read of it.
fn restore() {
    let _ = ratatui::try_restore();
}

/// What a key or a change of the terminal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// To end the watch.
    Leave,
    /// To stop reading, or to go on.
    Pause,
    /// To draw again.
    Draw,
}

impl Request {
    /// What an event asks for; most ask for nothing.
    pub(super) const fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Resize(..) => Some(Self::Draw),
            Event::Key(KeyEvent { kind: KeyEventKind::Press, code, modifiers, .. }) => {
                let control = modifiers.contains(KeyModifiers::CONTROL);
                match code {
                    KeyCode::Char('c' | 'd') if control => Some(Self::Leave),
                    KeyCode::Char('l') if control => Some(Self::Draw),
                    KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Self::Leave),
                    KeyCode::Char('p' | 'P' | ' ') => Some(Self::Pause),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_leave_and_pause() {
        let key = |code, modifiers| Request::of(&Event::Key(KeyEvent::new(code, modifiers)));
        let none = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), none), Some(Request::Leave));
        assert_eq!(key(KeyCode::Esc, none), Some(Request::Leave));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Request::Leave));
        assert_eq!(key(KeyCode::Char('p'), none), Some(Request::Pause));
        assert_eq!(key(KeyCode::Char('c'), none), None);
        assert_eq!(Request::of(&Event::Resize(80, 24)), Some(Request::Draw));
        assert_eq!(Request::of(&Event::FocusGained), None);
    }
}
