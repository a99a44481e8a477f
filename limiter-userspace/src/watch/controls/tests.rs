use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use limiter_common::base::tally::Tally;

use super::*;
use crate::{datapath::snapshot::Talker, policy::model::Mode};

/// The controls of a watch with some sources and limits, and a user.
struct Desk {
    controls: Controls,
    sources: Vec<Ranked>,
    limits: Vec<LimitRow>,
    now: Instant,
}

impl Desk {
    /// A watch of this many sources, five of which are on the screen.
    fn new(sources: u8) -> Self {
        let limits = ["connection", "syn", "source"].map(LimitRow::off).into();
        let sources = (1..=sources).map(source).collect();
        let mut desk = Self { controls: Controls::default(), sources, limits, now: Instant::now() };
        desk.settle();
        desk
    }

    fn settle(&mut self) {
        let choice = Choice { sources: &self.sources, limits: &self.limits };
        self.controls.settle(choice, Drawn { sources: 5, limits: 3, help: [0; 2] });
    }

    fn event(&mut self, event: &Event) -> Effect {
        let choice = Choice { sources: &self.sources, limits: &self.limits };
        let effect = self.controls.press(event, choice, self.now);
        self.settle();
        effect
    }

    fn key(&mut self, code: KeyCode) -> Effect {
        self.event(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    /// Types text with a pause before each key, as people do.
    fn typed(&mut self, text: &str) -> Effect {
        let mut effect = Effect::Nothing;
        for typed in text.chars() {
            self.now += READING;
            effect = self.key(if typed == '\n' { KeyCode::Enter } else { KeyCode::Char(typed) });
        }
        effect
    }

    fn filter(&self) -> String {
        self.controls.filter.as_ref().unwrap().to_string()
    }

    fn selected(&self) -> Option<String> {
        let choice = Choice { sources: &self.sources, limits: &self.limits };
        self.controls.source(choice).map(|row| row.net().to_string())
    }
}

fn source(last: u8) -> Ranked {
    let address = [203, 0, 113, last].into();
    let (passed, dropped) = (Tally::default(), Tally::default());
    let talker = Talker { address, prefix: 32, passed, dropped };
    Ranked { talker, rates: None, trend: None }
}

fn net(last: u8) -> IpNet {
    source(last).net()
}

#[test]
fn keys_end_it() {
    let control = |code| Event::Key(KeyEvent::new(code, KeyModifiers::CONTROL));
    let mut desk = Desk::new(1);
    assert_eq!(desk.key(KeyCode::Char('q')), Effect::Leave);
    assert_eq!(desk.event(&control(KeyCode::Char('c'))), Effect::Leave);
    assert_eq!(desk.key(KeyCode::Char('c')), Effect::Nothing);
    assert_eq!(desk.event(&control(KeyCode::Char('z'))), Effect::Stop);
    assert_eq!(desk.key(KeyCode::Char('z')), Effect::Nothing);
    assert_eq!(desk.event(&Event::Resize(80, 24)), Effect::Nothing);
    // Also during a question, which takes other keys as text.
    desk.typed("/q");
    assert!(matches!(&desk.controls.asking, Asking::Filter(line) if line.text() == "q"));
    assert_eq!(desk.event(&control(KeyCode::Char('c'))), Effect::Leave);
}

#[test]
fn the_selection_stays_with_its_source() {
    let mut desk = Desk::new(9);
    desk.key(KeyCode::Down);
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.1/32"));
    desk.key(KeyCode::Down);
    desk.sources.rotate_left(4);
    desk.settle();
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.2/32"));
    // It moved to the seventh place, and the table scrolled to it.
    assert_eq!(desk.controls.first(), [2, 0]);
    desk.key(KeyCode::Up);
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.1/32"));
    desk.key(KeyCode::PageUp);
    desk.key(KeyCode::PageUp);
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.5/32"));
    assert_eq!(desk.controls.first(), [0, 0]);
    desk.key(KeyCode::End);
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.4/32"));
    desk.key(KeyCode::Home);
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.5/32"));
}

#[test]
fn a_source_that_is_gone_is_not_selected() {
    let mut desk = Desk::new(3);
    desk.key(KeyCode::Down);
    desk.key(KeyCode::Down);
    desk.sources.remove(1);
    desk.settle();
    assert_eq!(desk.selected(), None);
    for key in ['d', 'a', '\n'] {
        desk.typed(&key.to_string());
        assert_eq!(desk.controls.asking, Asking::Nothing, "{key}");
        assert_eq!(desk.controls.open, None);
        assert!(desk.controls.message.as_ref().is_some_and(|message| message.failed));
    }
    // From the place that it had.
    desk.key(KeyCode::Up);
    assert_eq!(desk.selected().as_deref(), Some("203.0.113.1/32"));
    Desk::new(0).key(KeyCode::Down);
}

#[test]
fn a_source_is_denied_for_a_time_once_that_is_confirmed() {
    let action =
        |list, minutes| Action::Put { list, source: net(1), time: Duration::from_mins(minutes) };
    let mut desk = Desk::new(3);
    desk.key(KeyCode::Down);
    assert_eq!(desk.typed("d\n"), Effect::Nothing);
    assert_eq!(desk.typed("y"), Effect::Act(action(List::Deny, 10)));
    assert_eq!(desk.controls.asking, Asking::Nothing);
    desk.typed("a2h\n");
    assert_eq!(desk.typed("y"), Effect::Act(action(List::Allow, 120)));
    // Any other key cancels the change.
    for no in ['n', 'q', '\n', 'd', ' '] {
        desk.typed("d\n");
        assert!(matches!(desk.controls.asking, Asking::Confirm { .. }));
        assert_eq!(desk.typed(&no.to_string()), Effect::Nothing);
        assert_eq!(desk.controls.asking, Asking::Nothing);
        assert_eq!(desk.controls.message.as_ref().unwrap().text, "Nothing was changed.");
    }
    desk.typed("d");
    desk.key(KeyCode::Esc);
    assert_eq!(desk.controls.asking, Asking::Nothing);
    // After a text that is no time, the question is asked again.
    desk.typed("dsoon\n");
    assert!(matches!(&desk.controls.asking, Asking::Time { line, .. } if line.fault.is_some()));
    for _ in 0..4 {
        desk.key(KeyCode::Backspace);
    }
    desk.typed("1min\n");
    assert_eq!(desk.typed("y"), Effect::Act(action(List::Deny, 1)));
}

#[test]
fn what_is_pasted_or_pressed_too_soon_is_no_answer() {
    let mut desk = Desk::new(3);
    desk.key(KeyCode::Down);
    // Pasted text, as a terminal without bracketed paste sends it.
    for typed in ["d", "\n", "y", "y", "\n", "y", "d", "1h\n", "y"] {
        for typed in typed.chars() {
            let code = if typed == '\n' { KeyCode::Enter } else { KeyCode::Char(typed) };
            assert!(!matches!(desk.key(code), Effect::Act(_)));
        }
    }
    assert!(matches!(desk.controls.asking, Asking::Confirm { .. }));
    desk.key(KeyCode::Esc);
    assert_eq!(desk.event(&Event::Paste("d\nyq".into())), Effect::Nothing);
    assert_eq!(desk.controls.asking, Asking::Nothing);
    // A question takes pasted text, and a newline in it does not end the answer.
    desk.typed("/");
    desk.event(&Event::Paste("203.0.\n113.7\u{1b}".into()));
    assert!(matches!(&desk.controls.asking, Asking::Filter(line) if line.text() == "203.0.113.7"));
}

#[test]
fn a_limit_is_switched_once_that_is_confirmed() {
    let mut desk = Desk::new(3);
    desk.typed("m");
    assert!(desk.controls.message.as_ref().unwrap().text.starts_with("Select a limit"));
    desk.key(KeyCode::Tab);
    desk.key(KeyCode::Down);
    desk.key(KeyCode::Down);
    // The selection is a limit, no source.
    desk.typed("d");
    assert_eq!(desk.controls.asking, Asking::Nothing);
    let action = |mode| Effect::Act(Action::Switch { limit: "source".into(), mode });
    assert_eq!(desk.typed("my"), action(Mode::Monitor));
    desk.limits[2].mode = Mode::Monitor;
    assert_eq!(desk.typed("my"), action(Mode::Enforce));
    assert_eq!(desk.typed("mn"), Effect::Nothing);
}

#[test]
fn nothing_is_asked_where_nothing_is_changed() {
    let mut desk = Desk::new(3);
    desk.controls.read_only = true;
    desk.key(KeyCode::Down);
    for focus in [Focus::Sources, Focus::Limits] {
        assert_eq!(desk.controls.focus, focus);
        for key in ["d", "a", "m"] {
            desk.typed(key);
            assert_eq!(desk.controls.asking, Asking::Nothing, "{key}");
            assert_eq!(desk.controls.message.as_ref().unwrap().text, READ_ONLY);
        }
        desk.key(KeyCode::Tab);
    }
}

#[test]
fn a_filter_is_typed_and_taken_back() {
    let mut desk = Desk::new(3);
    desk.key(KeyCode::Down);
    assert_eq!(desk.typed("/2001:db8::/32\n"), Effect::Search);
    assert_eq!(desk.filter(), "2001:db8::/32");
    assert_eq!(desk.selected(), None);
    for part in ["/host\n", "/203.0.113/\n", "/203.0.113.0/33\n"] {
        assert_eq!(desk.typed(part), Effect::Nothing);
        assert!(matches!(&desk.controls.asking, Asking::Filter(line) if line.fault.is_some()));
        desk.key(KeyCode::Esc);
    }
    assert_eq!(desk.typed("/host\n"), Effect::Nothing);
    assert!(matches!(&desk.controls.asking, Asking::Filter(line) if line.fault.is_some()));
    desk.key(KeyCode::Esc);
    assert_eq!(desk.filter(), "2001:db8::/32", "it stays");
    assert_eq!(desk.key(KeyCode::Esc), Effect::Search);
    assert_eq!(desk.controls.filter, None);
    desk.typed("/203.0.113.9\n");
    assert_eq!(desk.filter(), "203.0.113.9/32");
    assert_eq!(desk.typed("/FEED\n"), Effect::Search);
    assert_eq!(desk.controls.filter, Some(Filter::Part("feed".into())));
    assert_eq!(desk.typed("/0.113.\n"), Effect::Search);
    assert_eq!(desk.controls.filter, Some(Filter::Part("0.113.".into())));
    assert_eq!(desk.typed("/\n"), Effect::Search);
    assert_eq!(desk.controls.filter, None);
}

#[test]
fn an_open_source_is_left_by_one_step_back() {
    let mut desk = Desk::new(3);
    desk.key(KeyCode::Down);
    assert_eq!(desk.typed("\n"), Effect::Open);
    assert_eq!(desk.controls.open, Some(net(1)));
    assert_eq!(desk.key(KeyCode::Down), Effect::Open);
    assert_eq!(desk.controls.open, Some(net(2)));
    // It stays open, and changes apply to it, when the scan does not find it any more.
    desk.sources.remove(1);
    desk.settle();
    desk.typed("d\n");
    assert!(matches!(desk.typed("y"), Effect::Act(Action::Put { source, .. }) if source == net(2)));
    desk.key(KeyCode::Esc);
    assert_eq!(desk.controls.open, None);
    desk.typed("?");
    assert_eq!(desk.controls.asking, Asking::Help { first: 0 });
    assert_eq!(desk.key(KeyCode::Down), Effect::Nothing, "all of it is on the screen");
    assert_eq!(desk.controls.asking, Asking::Nothing);
    desk.typed("?");
    assert_eq!(desk.typed("q"), Effect::Nothing, "it closes the help");
    assert_eq!(desk.controls.asking, Asking::Nothing);
}

#[test]
fn sorting_goes_round_and_freezing_ends_with_a_reading() {
    let mut desk = Desk::new(3);
    for order in [Order::PassRate, Order::Bytes, Order::Packets, Order::Address, Order::DropRate] {
        assert_eq!(desk.typed("s"), Effect::Search);
        assert_eq!(desk.controls.order, order);
    }
    desk.typed("S");
    assert_eq!(desk.controls.order, Order::Address);
    assert_eq!(desk.typed("p"), Effect::Freeze);
    assert!(desk.controls.frozen);
    assert_eq!(desk.typed(" "), Effect::Read);
    assert!(!desk.controls.frozen);
}
