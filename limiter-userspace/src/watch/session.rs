//! A watch, from its first reading to its last.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use tokio::runtime;

use super::{
    display::Display,
    lines::Lines,
    observer::{Next, Observer},
    stop::Who,
    terminal::Screen,
    view::View,
    wake::{Signals, Wake, Waker, leave_to_the_first},
};
use crate::{
    output::{locale::is_utf8, stream::Output},
    policy::units::printable,
    watch::{
        data_source::DataSource,
        options::{Options, WatchError},
    },
};

/// Watches until the options or the user end it. On a terminal it draws a screen, unless lines or
/// JSON are asked for. Elsewhere it prints a line for each interval, the first one after an
/// interval.
///
/// The first reading scans all sources. Later scans take less than a tenth of the time, apart from
/// those that a key asks for.
///
/// # Errors
/// An error of the data source that does not pass, or a [`WatchError`].
pub fn run<W, S>(options: &Options, output: &mut Output<W>, source: S) -> Result<(), S::Error>
where
    W: Write,
    S: DataSource,
    S::Error: From<WatchError>,
{
    options.check()?;
    // The thread that waits for keys blocks the signals.
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().on_thread_start(leave_to_the_first);
    let runtime = runtime.build().map_err(WatchError::Wait)?;
    let result = runtime.block_on(watch(options, output, source));
    // If the terminal is gone, the thread that waits for keys may never end.
    runtime.shutdown_background();
    result
}

async fn watch<W, S>(options: &Options, output: &mut Output<W>, source: S) -> Result<(), S::Error>
where
    W: Write,
    S: DataSource,
    S::Error: From<WatchError>,
{
    // A watch that is shorter than the interval still makes one reading.
    let interval = options.length.map_or(options.interval, |length| {
        length.clamp(Duration::from_millis(1), options.interval)
    });
    let mut watch = Observer::begin(source, interval, output.has_colour())?;
    watch.view.controls.read_only = options.read_only;
    watch.view.ascii = !is_utf8();
    watch.view.host = host();
    let on_screen = output.is_terminal() && !output.is_json() && !options.lines;
    // Before the terminal is taken over, as an error here could not give it back.
    let signals = Signals::new(on_screen).map_err(WatchError::Wait)?;
    let mut display = if on_screen {
        Display::Screen(Screen::enter().map_err(WatchError::Terminal)?)
    } else {
        Display::Lines(Lines::default(), output)
    };
    display.begin(&mut watch)?;
    let mut waker = Waker::new(signals, interval, options.length, on_screen);
    let mut left = options.count;
    while left != Some(0) && !display.is_closed() {
        match waker.next().await.map_err(WatchError::Terminal)? {
            Wake::Tick if watch.view.controls.frozen => {
                watch.view.now = Instant::now();
                display.show(&mut watch)?;
            }
            Wake::Tick if watch.read(left == Some(1))? => {
                display.show(&mut watch)?;
                left = left.map(|left| left - 1);
            }
            Wake::Tick => display.late(&mut watch)?,
            // Keys from before the stop are dropped, like those that came with the Ctrl-Z.
            Wake::Keys(_) if display.is_left() => {}
            Wake::Keys(pressed) => {
                match watch.press(pressed, waker.can_stop())? {
                    Next::Show => {}
                    Next::Redraw => display.clear()?,
                    Next::Stop => display.leave(Who::Together)?,
                    Next::Leave => break,
                }
                if !display.is_left() {
                    display.show(&mut watch)?;
                    watch.view.controls.shown(Instant::now());
                }
            }
            Wake::Stop => display.leave(Who::Alone)?,
            Wake::Continue => {
                display.again()?;
                display.show(&mut watch)?;
                watch.view.controls.shown(Instant::now());
            }
            Wake::End => break,
        }
        // A frozen picture needs no readings.
        waker.again(watch.view.late.is_some() && !watch.view.controls.frozen);
    }
    drop(display);
    if on_screen {
        say_goodbye(&watch.view);
    }
    Ok(())
}

/// The name of this host, up to its first dot, as prompts show it.
fn host() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    printable(name.split('.').next().unwrap_or_default(), 32)
}

/// Tells on standard error that the limiter stays attached. A failure to do so is ignored.
fn say_goodbye(view: &View) {
    let attached = view.history.latest().interfaces.iter().filter(|interface| interface.present);
    let names: Vec<_> = attached.map(|interface| interface.name.as_str()).collect();
    if !names.is_empty() {
        let _ = writeln!(
            io::stderr(),
            "limiter is still attached to {}; detach with `limiter detach {}`",
            names.join(", "),
            names.join(" ")
        );
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;
    use crate::{
        datapath::survey::Search,
        query::dropped::Dropped,
        watch::{
            action::Action, opened::Details, screen::example, standing::Standing, view::Reading,
        },
    };

    /// A made-up limiter, whose lines are printed.
    struct Example<R>(R);

    impl<R: FnMut(bool) -> Result<Reading, WatchError>> DataSource for Example<R> {
        type Error = WatchError;

        fn passes(error: &WatchError) -> bool {
            matches!(error, WatchError::Wait(why) if why.kind() == io::ErrorKind::Interrupted)
        }

        fn read(&mut self, search: Option<&Search>) -> Result<Reading, WatchError> {
            (self.0)(search.is_some())
        }

        fn standings(&mut self, _: &[IpNet]) -> Result<Vec<Standing>, String> {
            Err("only a screen asks for this".to_owned())
        }

        fn details(&mut self, _: IpNet) -> Result<Details, String> {
            Err("only keys ask for this".to_owned())
        }

        fn drops(&mut self, _: bool) -> Result<Vec<Dropped>, String> {
            Err("no packets are shown".to_owned())
        }

        fn act(&mut self, _: &Action) -> Result<String, String> {
            Err("only keys ask for this".to_owned())
        }
    }

    fn run_lines(options: &Options, json: bool) -> Result<String, WatchError> {
        let mut written = Vec::new();
        let mut output = Output::new(&mut written, json, false);
        let start = Instant::now();
        let read = |scan| {
            let time = Duration::from_secs(5) + start.elapsed();
            Ok(example::reading(Instant::now(), time, scan))
        };
        run(options, &mut output, Example(read))?;
        drop(output);
        Ok(String::from_utf8(written).unwrap())
    }

    #[test]
    fn a_single_line_is_about_two_scans_however_long_they_take() {
        let mut scans = 0;
        let read = |scan| {
            if scan {
                scans += 1;
                std::thread::sleep(Options::SHORTEST * 2);
            }
            Ok(example::reading(Instant::now(), Duration::from_secs(5), scan))
        };
        let mut written = Vec::new();
        let mut output = Output::new(&mut written, false, false);
        run(&Options::once(Options::SHORTEST), &mut output, Example(read)).unwrap();
        assert_eq!(scans, 2);
    }

    const FAST: Options = Options {
        interval: Options::SHORTEST,
        count: None,
        length: None,
        lines: true,
        read_only: true,
    };

    #[test]
    fn a_watch_ends_by_count_and_by_time() {
        let text = run_lines(&Options { count: Some(3), ..FAST }, false).unwrap();
        assert_eq!(text.lines().count(), 1 + 3, "{text}");
        let length = Some(FAST.interval * 4);
        let text = run_lines(&Options { length, ..FAST }, true).unwrap();
        // A busy machine may miss ticks, which are skipped.
        assert!((1..=4).contains(&text.lines().count()), "{text}");
        let length = Some(Duration::ZERO);
        assert!(run_lines(&Options { length, ..FAST }, true).unwrap().lines().count() <= 1);
        let length = Some(Duration::from_millis(60));
        let interval = Duration::from_secs(60);
        let text = run_lines(&Options { length, interval, ..FAST }, true).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn every_line_of_json_has_counts_rates_and_sources() {
        let text = run_lines(&Options::once(FAST.interval), true).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["schema"], "limiter.watch/1");
        assert!(line["interfaces"][0]["packets"]["passed"].is_u64());
        assert!(line["reasons"]["exceed"].is_u64());
        assert!(line["sources"]["capacity"].is_u64());
        assert!(line["rates"]["dropped"]["packets"].as_f64().unwrap() > 0.0, "{text}");
        assert!(line["rates"]["reasons"]["exceed"].as_f64().unwrap() > 0.0);
        assert_eq!(line["rates"]["limits"][2]["name"], "source");
        assert!(line["top"][0]["source"].is_string());
        assert!(line["top"][0]["dropped_per_second"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn intervals_that_make_no_sense_are_refused() {
        for interval in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            let error = run_lines(&Options { interval, ..FAST }, false).unwrap_err();
            assert!(error.to_string().contains("50ms to 1d 00h"), "{error}");
        }
    }

    #[test]
    fn what_passes_by_itself_is_tried_again_and_has_no_line() {
        for json in [false, true] {
            let mut written = Vec::new();
            let mut output = Output::new(&mut written, json, false);
            let (mut readings, start) = (0, Instant::now());
            // The first reading fails too; three readings succeed.
            let read = |scan| {
                readings += 1;
                match readings {
                    1 | 2 | 4 | 6 | 7 => Err(WatchError::Wait(io::ErrorKind::Interrupted.into())),
                    _ => Ok(example::reading(Instant::now(), start.elapsed(), scan)),
                }
            };
            run(&Options { count: Some(2), ..FAST }, &mut output, Example(read)).unwrap();
            drop(output);
            assert_eq!(readings, 8);
            let text = String::from_utf8(written).unwrap();
            assert_eq!(text.lines().count(), 2 + usize::from(!json), "{text}");
        }
    }

    #[test]
    fn what_does_not_pass_is_no_reading_in_the_end() {
        let mut output = Output::new(io::sink(), false, false);
        let read = |_| Err(WatchError::Wait(io::ErrorKind::Interrupted.into()));
        let result = run(&FAST, &mut output, Example(read));
        assert!(matches!(result, Err(WatchError::Wait(_))));
    }

    #[test]
    fn a_reading_that_fails_ends_the_watch_with_its_error() {
        let mut output = Output::new(io::sink(), false, false);
        let mut readings = 0;
        let read = |scan| {
            readings += 1;
            if readings > 2 {
                return Err(WatchError::Wait(io::ErrorKind::NotFound.into()));
            }
            Ok(example::reading(Instant::now(), Duration::ZERO, scan))
        };
        let result = run(&FAST, &mut output, Example(read));
        assert!(matches!(result, Err(WatchError::Wait(_))));
    }
}
