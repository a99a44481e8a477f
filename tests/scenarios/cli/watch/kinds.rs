//! Kinds of terminals: narrow ones, those of unknown size, those without UTF-8, and dumb ones.

use super::{
    Bench, DOWN, Document, ENTER, SMALL, in_environment, start, terminal::Terminal, while_sending,
};

#[test]
fn narrow_terminals_and_those_of_unknown_size_show_what_is_dropped() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --pps 100/s --burst 100"));
    let lines = "limits: [{name: first, key: source, match: {protocol: tcp}, rate: 9/s}, \
                 {name: source, key: source, rate: 100/s, burst: 100}, \
                 {name: last, key: source, match: {protocol: icmp}, rate: 9/s}]";
    bench.done(&Document::new(lines).in_place("policy apply FILE"));
    while_sending(&bench, &[([192, 0, 2, 7], 3_000), ([198, 51, 100, 9], 30)], || {
        let mut screen = start(&bench, "watch --interval 300ms", &[]);
        screen.wait_for("192.0.2.7 ");
        screen.resize(45, 20);
        // The limit that refuses packets comes before the others.
        let place = |text: &str, words: &str| text.lines().position(|it| it.starts_with(words));
        let text = screen.wait("a narrow screen with the limit that refuses first", |text| {
            text.lines().next().is_some_and(|line| line.ends_with('Z') && line.len() <= 45)
                && place(text, " source ").is_some_and(|it| Some(it) < place(text, " first "))
        });
        assert!(place(&text, " first ") < place(&text, " last "), "{text}");
        assert!(text.ends_with("? help  q end\n"), "{text}");
        screen.press(&["?"]);
        screen.wait_for("1-15 of ");
        screen.press(&[DOWN, DOWN]);
        screen.wait_for("3-17 of ");
        screen.press(&["q"]);
        screen.wait("no help", |text| !text.contains("scroll"));

        // A part of an address.
        screen.press(&["/", "0.2.", ENTER]);
        screen.wait("only one source", |text| {
            text.contains("filter 0.2.") && text.contains("1 SOURCE ") && !text.contains("198.51.")
        });
        screen.press(&["q"]);
        assert_eq!(screen.end().code(), Some(0));

        let mut command = bench.hosts.router.command(bench.limiter.path().to_str().unwrap());
        command.args(["watch", "--interval", "300ms"]);
        in_environment(&mut command, &[]);
        let mut screen = Terminal::start(command, 0, 0);
        let text = screen.wait("all of it", |text| text.contains("over source"));
        assert!(text.contains(" watching ") && text.contains("q end"), "{text}");
        screen.press(&["q"]);
        assert_eq!(screen.end().code(), Some(0));
    });
}

#[test]
fn a_terminal_gets_what_it_can_show() {
    let bench = Bench::attached();
    while_sending(&bench, &[([192, 0, 2, 7], 3_000)], || {
        for variables in [[("LANG", "C"), ("LC_CTYPE", "")], [("LANG", "C.UTF-8"), ("LC_ALL", "C")]]
        {
            let mut screen = start(&bench, "watch --interval 300ms", &variables);
            let text = screen.wait_for("over connection");
            assert!(text.is_ascii() && text.contains("^v select"), "{text}");
            screen.press(&["q"]);
            assert_eq!(screen.end().code(), Some(0));
        }
        // A dumb terminal cannot be drawn on, and gets lines.
        let mut screen = start(&bench, "watch --interval 300ms --count 2", &[("TERM", "dumb")]);
        assert_eq!(screen.end().code(), Some(0));
        let text = screen.text();
        assert!(text.starts_with("TIME ") && text.contains("192.0.2.7 "), "{text}");
        assert_eq!(screen.is_taken(), [false; 3]);
        assert_eq!(
            text.trim_end().lines().count(),
            3,
            "no line is wider than the terminal: {text}"
        );
    });
}
