use proptest::prelude::*;

use super::*;

const MINUTE: u64 = 60 * SECOND;

#[test]
fn rates_are_read_as_stated() {
    for (text, packets, period) in [
        ("1000", 1_000, SECOND),
        ("10k", 10_000, SECOND),
        ("10K", 10_000, SECOND),
        ("10kpps", 10_000, SECOND),
        ("10 kpps", 10_000, SECOND),
        (" 10 k pps ", 10_000, SECOND),
        ("10Kpps", 10_000, SECOND),
        ("10KPPS", 10_000, SECOND),
        ("50pps", 50, SECOND),
        ("2Mpps", 2_000_000, SECOND),
        ("1Gpps", HIGHEST, SECOND),
        ("1.5kpps", 1_500, SECOND),
        ("1.50 kpps", 1_500, SECOND),
        ("100/s", 100, SECOND),
        ("100 /sec", 100, SECOND),
        ("100/ second", 100, SECOND),
        ("100 packets/s", 100, SECOND),
        ("1 packet / s", 1, SECOND),
        ("50 SYNs/s", 50, SECOND),
        ("5/min", 5, MINUTE),
        ("5/m", 5, MINUTE),
        ("5/minute", 5, MINUTE),
        ("60/min", 60, MINUTE),
        ("10k/h", 10_000, 60 * MINUTE),
        ("3/hour", 3, 60 * MINUTE),
        ("1/day", 1, 24 * 60 * MINUTE),
        ("1/366day", 1, Rate::MIN.period),
        ("100/10s", 100, 10 * SECOND),
        ("100/1.5s", 100, 3 * SECOND / 2),
        ("1/ms", 1, 1_000_000),
        ("1/ns", 1, 1),
        ("10,000", 10_000, SECOND),
        ("10,000/min", 10_000, MINUTE),
        ("1e6/s", 1_000_000, SECOND),
        ("1e6", 1_000_000, SECOND),
        ("1e3 kpps", 1_000_000, SECOND),
        ("7/w", 7, 7 * 24 * 60 * MINUTE),
        ("0.5/s", 1, 2 * SECOND),
        ("0.5", 1, 2 * SECOND),
        ("1.25/min", 5, 4 * MINUTE),
        ("0.001k/min", 1, MINUTE),
        ("18446744073709551615/18446744073709551615ns", u64::MAX, u64::MAX),
    ] {
        assert_eq!(parse_rate(text), Ok(Rate { packets, period }), "{text}");
    }
}

#[test]
fn other_rates_are_refused_with_cause_and_remedy() {
    let off = "to drop all of a source, use `limiter deny add`; to switch a limit off, `limiter limit del NAME`";
    let unlimited = "to switch a limit off, use `limiter limit del NAME`";
    let examples = "give packets per time, such as 10kpps, 100/s or 5/min";
    let fast = "to switch a limit off, use `limiter limit del NAME`; the highest rate is 1Gpps";
    let slow = "the lowest rate is 1/366day";
    let table = [
        ("", "rate \"\" is empty", examples),
        ("0", "rate \"0\" is zero", off),
        ("0.00kpps", "rate \"0.00kpps\" is zero", off),
        ("0/min", "rate \"0/min\" is zero", off),
        ("unlimited", "rate \"unlimited\" does not start with a number", unlimited),
        ("1,5", "rate \"1,5\" has the unknown unit \",5\"", examples),
        ("-5", "rate \"-5\" is negative", examples),
        ("−5", "rate \"−5\" does not start with a number", examples),
        ("pps", "rate \"pps\" does not start with a number", examples),
        ("NaN", "rate \"NaN\" does not start with a number", examples),
        ("inf", "rate \"inf\" does not start with a number", examples),
        ("１０pps", "rate \"１０pps\" does not start with a number", examples),
        ("1000000001", "rate \"1000000001\" is above 1000000000 packets per second", fast),
        ("1.1Gpps", "rate \"1.1Gpps\" is above 1000000000 packets per second", fast),
        ("2/ns", "rate \"2/ns\" is above 1000000000 packets per second", fast),
        (
            "99999999999999999999G",
            "rate \"99999999999999999999G\" is above 1000000000 packets per second",
            fast,
        ),
        (
            "100000000000000000000/day",
            "rate \"100000000000000000000/day\" is above 1000000000 packets per second",
            fast,
        ),
        ("1/367day", "rate \"1/367day\" is below one packet in 366 days", slow),
        ("0.001/day", "rate \"0.001/day\" is below one packet in 366 days", slow),
        (
            "1/99999999999999day",
            "rate \"1/99999999999999day\" is below one packet in 366 days",
            slow,
        ),
        (
            "0.00000000000000000001",
            "rate \"0.00000000000000000001\" is below one packet in 366 days",
            slow,
        ),
        (
            "1.0000000000000000001",
            "rate \"1.0000000000000000001\" has more digits than can be kept exactly",
            examples,
        ),
        (
            "10Mbps",
            "rate \"10Mbps\" is ambiguous: Mbps may mean megabits or megabytes per second",
            "where data is counted, write 10Mbit/s or 10MB/s; this limit counts packets: give \
             packets per time, such as 10kpps, 100/s or 5/min",
        ),
        (
            "1.5 kbps",
            "rate \"1.5 kbps\" is ambiguous: kbps may mean kilobits or kilobytes per second",
            "where data is counted, write 1.5kbit/s or 1.5kB/s; this limit counts packets: give \
             packets per time, such as 10kpps, 100/s or 5/min",
        ),
        (
            "9bps",
            "rate \"9bps\" is ambiguous: bps may mean bits or bytes per second",
            "where data is counted, write 9bit/s or 9B/s; this limit counts packets: give \
             packets per time, such as 10kpps, 100/s or 5/min",
        ),
        (
            "10Mbit/s",
            "rate \"10Mbit/s\" is an amount of data, and this limit counts packets",
            examples,
        ),
        ("5 MB/s", "rate \"5 MB/s\" is an amount of data, and this limit counts packets", examples),
        ("10kppz", "rate \"10kppz\" has the unknown unit \"kppz\"", "did you mean 10kpps?"),
        ("10mpps", "rate \"10mpps\" has the unknown unit \"mpps\"", "did you mean 10Mpps?"),
        ("10min", "rate \"10min\" has the unknown unit \"min\"", "did you mean 10/min?"),
        ("5 / mim", "rate \"5 / mim\" has the unknown unit \"/ mim\"", "did you mean 5/min?"),
        ("5/0s", "rate \"5/0s\" has the unknown unit \"/0s\"", "did you mean 5/s?"),
        ("5 bananas", "rate \"5 bananas\" has the unknown unit \"bananas\"", examples),
        ("1,00", "rate \"1,00\" has the unknown unit \",00\"", examples),
        ("1e-9", "rate \"1e-9\" has the unknown unit \"e-9\"", examples),
        ("1e10", "rate \"1e10\" is above 1000000000 packets per second", fast),
        ("10\x1b[2J", "rate \"10\\u{1b}[2J\" has the unknown unit \"\\u{1b}[2J\"", examples),
    ];
    for (text, message, remedy) in table {
        let error = parse_rate(text).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.remedy(), remedy, "{text}");
    }
}

#[test]
fn a_huge_text_is_neither_slow_nor_repeated() {
    for text in ["9", "0", "k", "-", "é", "5/", " "] {
        let text = text.repeat(1 << 20);
        for text in [text.clone() + "bps", text.clone() + "kppz", text] {
            let error = parse_rate(&text).unwrap_err();
            assert!(error.to_string().len() < 400 && error.remedy().len() < 400);
        }
    }
}

#[test]
fn rates_are_printed_exactly() {
    for (packets, period, text) in [
        (10_000, SECOND, "10 kpps"),
        (1_500, SECOND, "1.5 kpps"),
        (50, SECOND, "50 pps"),
        (1_234_567, SECOND, "1234.567 kpps"),
        (1_000_000_000, SECOND, "1 Gpps"),
        (5, MINUTE, "5/min"),
        (60, MINUTE, "60/min"),
        (10_000, 60 * MINUTE, "10k/h"),
        (1, 24 * 60 * MINUTE, "1/day"),
        (1, 2 * SECOND, "1/2s"),
        (100, 90 * SECOND, "100/90s"),
        (3, 1_500_000, "3/1500us"),
        (7, 7, "7/7ns"),
    ] {
        let rate = Rate { packets, period };
        assert_eq!(format_rate(rate), text);
        assert_eq!(parse_rate(text), Ok(rate));
    }
}

#[test]
fn a_rate_in_json_is_an_integer_when_it_is_one() {
    for (text, json) in [
        ("10kpps", "10000"),
        ("60/min", "1"),
        ("100/10s", "10"),
        ("0.5/s", "0.5"),
        ("1/3s", "0.3333333333333333"),
        ("1/ns", "1000000000"),
    ] {
        let rate = parse_rate(text).unwrap();
        assert_eq!(rate_per_second(rate).to_string(), json, "{text}");
    }
}

proptest! {
    #[test]
    fn any_rate_survives_printing(packets in any::<u64>(), period in any::<u64>(), shift in 0..64_u32) {
        let rate = Rate { packets: packets >> shift, period: (period >> shift).max(1) };
        if rate.check().is_ok() && rate.packets <= rate.period {
            prop_assert_eq!(parse_rate(&format_rate(rate)), Ok(rate));
        }
    }

    #[test]
    fn no_text_panics(text in "(?s).*|[0-9.]{0,25} ?[kKMGm]?[a-zA-Z/ 0-9]{0,9}") {
        if let Ok(rate) = parse_rate(&text) {
            prop_assert_eq!(rate.check(), Ok(()));
            prop_assert!(rate.packets <= rate.period, "1 Gpps");
            prop_assert_eq!(parse_rate(&format_rate(rate)), Ok(rate));
        }
    }
}

#[test]
fn rates_of_requests_are_read_and_written() {
    for (text, packets, period, written) in [
        ("10/s", 10, SECOND, "10/s"),
        ("10", 10, SECOND, "10/s"),
        ("1.5k requests/s", 1_500, SECOND, "1.5k/s"),
        ("2k rps", 2_000, SECOND, "2k/s"),
        ("1 request/min", 1, MINUTE, "1/min"),
        ("120 req/min", 120, MINUTE, "120/min"),
        ("5/2h", 5, 120 * MINUTE, "5/2h"),
    ] {
        let rate = Rate { packets, period };
        assert_eq!(parse_request_rate(text), Ok(rate), "{text}");
        assert_eq!(format_request_rate(rate), written);
        assert_eq!(parse_request_rate(written), Ok(rate));
    }
}

#[test]
fn rates_of_requests_are_refused_in_words_of_requests() {
    let examples = "give requests per time, such as 100/s, 1k/s or 5/min";
    for (text, message, remedy) in [
        ("10kpps", "has the unknown unit \"kpps\"", "did you mean 10krps?"),
        ("5 packets/s", "has the unknown unit \"packets/s\"", "did you mean 5requests/s?"),
        ("2Mbit/s", "is an amount of data, and this limit counts requests", examples),
        ("2Mbps", "is ambiguous: Mbps may mean megabits or megabytes per second", examples),
        ("2G/s", "is above 1000000000 requests per second", "the highest rate is 1G/s"),
        ("1/2year", "has the unknown unit \"/2year\"", examples),
        ("1/400d", "is below one request in 366 days", "the lowest rate is 1/366day"),
    ] {
        let error = parse_request_rate(text).unwrap_err();
        assert_eq!(error.to_string(), format!("rate \"{text}\" {message}"));
        assert_eq!(error.remedy(), remedy, "{text}");
    }
}
