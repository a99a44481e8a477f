//! A line that is typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// More is not taken.
const LONGEST: usize = 64;

/// A line that is typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// What is wrong with what was typed.
    pub fault: Option<String>,
}

impl Line {
    /// What was typed, without blanks around it.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    /// Takes in a key, of those that edit.
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

    /// Adds text, as far as it can be part of what is asked for.
    pub fn insert(&mut self, text: &str) {
        let room = LONGEST.saturating_sub(self.text.len());
        let typed = text.chars().filter(|typed| typed.is_ascii_graphic() || *typed == ' ');
        self.text.extend(typed.take(room));
        self.fault = None;
    }
}
