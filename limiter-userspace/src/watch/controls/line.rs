//! A line of input.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The most characters of a line.
const LONGEST: usize = 64;

/// A line of input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// Why the line was refused; `None` after the next key.
    pub fault: Option<String>,
}

impl Line {
    /// The text, without blanks around it.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    /// Handles a key that edits the line. Other keys do nothing.
    pub fn press(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.text.clear(),
            KeyCode::Char(typed) if !control => self.insert(&typed.to_string()),
            KeyCode::Backspace => {
                self.text.pop();
            }
            _ => return,
        }
        self.fault = None;
    }

    /// Appends text. Characters that no address or time has, and those that are too many, are
    /// dropped.
    pub fn insert(&mut self, text: &str) {
        let room = LONGEST.saturating_sub(self.text.len());
        let typed = text.chars().filter(|typed| typed.is_ascii_graphic() || *typed == ' ');
        self.text.extend(typed.take(room));
        self.fault = None;
    }
}
