//! The writer to standard output.

use std::{
    collections::BTreeMap,
    env, fmt,
    io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write},
};

use serde::Serialize;
use thiserror::Error;

use crate::error::Failure;

use super::{
    number::Amounts,
    table::{GAP, Table},
    tone::{RESET, Tone},
};

/// An error of printing.
#[derive(Debug, Error)]
pub enum OutputError {
    /// Standard output cannot be written to.
    #[error("cannot write to stdout: {0}")]
    Write(io::Error),
    /// The value cannot be converted to JSON.
    #[error("cannot print this as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Failure for OutputError {
    fn remedy(&self) -> Option<String> {
        matches!(self, Self::Write(_))
            .then(|| "check where it is redirected to; what was asked for was done".to_owned())
    }
}

/// A value with the name of its JSON schema.
#[derive(Serialize)]
struct Shape<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

/// A buffered writer to standard output that reports every error. [`flush`](Self::flush) writes the
/// rest of the buffer; every command ends with it.
///
/// A reader that has closed the pipe, as in `limiter top | head -1`, is no error: the rest of the
/// output is thrown away, and [`is_closed`](Self::is_closed) returns true.
#[derive(Debug)]
pub struct Output<W: Write = Stdout> {
    writer: BufWriter<W>,
    json: bool,
    amounts: Amounts,
    terminal: bool,
    columns: Option<usize>,
    colour: bool,
    closed: bool,
}

impl Output {
    /// Opens standard output, for JSON or for text. Text is coloured on a terminal, unless
    /// `NO_COLOR` has a value, or `TERM` is unset or `dumb`.
    pub fn stdout(json: bool) -> Self {
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let columns = io::stdout().is_terminal().then(columns);
        let terminal = columns.is_some() && !dumb;
        Self { terminal, columns, ..Self::new(io::stdout(), json, terminal && !plain) }
    }
}

/// The columns of the terminal; 80 if it does not know them.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().filter(|it| it.ws_col > 0).map_or(80, |it| it.ws_col.into())
}

impl<W: Write> Output<W> {
    /// Wraps a writer that is not a terminal.
    pub fn new(writer: W, json: bool, colour: bool) -> Self {
        let writer = BufWriter::new(writer);
        let amounts = Amounts::default();
        Self { writer, json, amounts, terminal: false, columns: None, colour, closed: false }
    }

    /// Sets the form in which amounts are written in text.
    #[must_use]
    pub fn with_amounts(self, amounts: Amounts) -> Self {
        Self { amounts, ..self }
    }

    /// The form in which amounts are written in text.
    pub const fn amounts(&self) -> Amounts {
        self.amounts
    }

    /// Whether JSON was asked for.
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether standard output is a terminal that a screen can be drawn on.
    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The columns of a terminal that lines are printed on, also of one without a screen (`TERM=dumb`).
    pub const fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Takes the output as that of a terminal with this number of columns.
    #[must_use]
    pub fn with_columns(self, columns: usize) -> Self {
        Self { columns: Some(columns), ..self }
    }

    /// Whether text is coloured.
    pub const fn has_colour(&self) -> bool {
        self.colour
    }

    /// Whether the reader has closed the pipe.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Prints a value as one line of JSON.
    ///
    /// # Errors
    /// [`OutputError`], if it cannot be converted or written.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), OutputError> {
        let mut line = serde_json::to_string(value)?;
        line.push('\n');
        self.write(line.as_bytes())
    }

    /// Prints a value as one line of JSON, with the name of its schema as the first member. The
    /// value has to be an object.
    ///
    /// # Errors
    /// [`OutputError`], if it cannot be converted or written.
    pub fn shape(
        &mut self,
        schema: &'static str,
        value: &impl Serialize,
    ) -> Result<(), OutputError> {
        self.json(&Shape { schema, value })
    }

    /// Prints entries as a JSON object with the schema and one member, `name`.
    ///
    /// # Errors
    /// [`OutputError`], if they cannot be converted or written.
    pub fn entries<T: Serialize>(
        &mut self,
        schema: &'static str,
        name: &'static str,
        entries: &[T],
    ) -> Result<(), OutputError> {
        self.shape(schema, &BTreeMap::from([(name, entries)]))
    }

    /// Prints a table in full width.
    ///
    /// # Errors
    /// [`OutputError::Write`], if it cannot be written.
    pub fn table(&mut self, table: &Table) -> Result<(), OutputError> {
        for line in table.layout(usize::MAX) {
            for (place, cell) in line.iter().enumerate() {
                if place > 0 {
                    self.write(GAP.as_bytes())?;
                }
                self.toned(cell.tone, &cell.text)?;
            }
            self.write(b"\n")?;
        }
        Ok(())
    }

    /// Prints a text in a tone. Blanks at its ends are left plain.
    ///
    /// # Errors
    /// [`OutputError::Write`], if it cannot be written.
    pub fn toned(&mut self, tone: Tone, text: &str) -> Result<(), OutputError> {
        let body = text.trim();
        if !self.colour || tone == Tone::Plain || body.is_empty() {
            return self.write(text.as_bytes());
        }
        let start = text.len() - text.trim_start().len();
        let (before, after) = (&text[..start], &text[start + body.len()..]);
        self.write_fmt(format_args!("{before}{}{body}{RESET}{after}", tone.escape()))
    }

    /// Prints formatted text. `write!` and `writeln!` call it.
    ///
    /// # Errors
    /// [`OutputError::Write`], if it cannot be written.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<(), OutputError> {
        let result = if self.closed { Ok(()) } else { self.writer.write_fmt(text) };
        self.outcome(result)
    }

    /// Writes the rest of the buffer.
    ///
    /// # Errors
    /// [`OutputError::Write`], if it cannot be written.
    pub fn flush(&mut self) -> Result<(), OutputError> {
        let result = if self.closed { Ok(()) } else { self.writer.flush() };
        self.outcome(result)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        let result = if self.closed { Ok(()) } else { self.writer.write_all(bytes) };
        self.outcome(result)
    }

    fn outcome(&mut self, result: io::Result<()>) -> Result<(), OutputError> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => result.map_err(OutputError::Write),
        }
    }
}

/// Returns the output of `print`, for a test.
#[cfg(test)]
pub(crate) fn printed(
    json: bool,
    colour: bool,
    print: impl FnOnce(&mut Output<&mut Vec<u8>>) -> Result<(), OutputError>,
) -> String {
    let mut written = Vec::new();
    let mut output = Output::new(&mut written, json, colour);
    print(&mut output).unwrap();
    output.flush().unwrap();
    drop(output);
    String::from_utf8(written).unwrap()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::output::table::{Cell, Column};

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_full_device_is_an_error_that_names_stdout() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut output = Output::new(full, false, false);
        writeln!(output, "buffered").unwrap();
        let error = output.flush().unwrap_err().to_string();
        assert!(error.contains("stdout") && error.contains("No space left"), "{error}");
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_output_quietly() {
        let mut output = Output::new(Gone, false, false);
        writeln!(output, "nobody reads this").unwrap();
        assert!(!output.is_closed());
        output.flush().unwrap();
        assert!(output.is_closed());
        output.json(&1).unwrap();
    }

    #[test]
    fn only_a_coloured_output_has_escapes() {
        let mut table = Table::new([Column::left("A"), Column::right("LONG")]);
        table.row([Cell::from("x"), Cell::new("7", Tone::Dropped)]);
        for (colour, text) in [
            (false, "A  LONG\nx     7\n"),
            (true, "\x1b[2mA\x1b[0m  \x1b[2mLONG\x1b[0m\nx     \x1b[31m7\x1b[0m\n"),
        ] {
            assert_eq!(printed(false, colour, |output| output.table(&table)), text);
        }
    }
}
