//! `limiter man`: the manual pages, made from the definition of the command line.

mod policy;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use clap_mangen::{
    Man as Page,
    roff::{Inline, Roff, bold, italic, roman},
};
use serde_json::json;

use super::{command, examples::HEADING};
use crate::{
    error::{Error, Result},
    output::stream::Output,
};

/// The section of commands for administrators.
const SECTION: &str = "8";
const SOURCE: &str = concat!("limiter ", env!("CARGO_PKG_VERSION"));

/// Every exit code of the command.
const EXIT_CODES: [(&str, &str); 7] = [
    ("0", "Done."),
    ("1", "Failed."),
    ("2", "The command line is wrong."),
    ("3", "The policy is wrong, or does not fit."),
    ("4", "What was named does not exist."),
    ("5", "No permission."),
    (
        "6",
        "Another command, another program, or a policy that waits to be confirmed is in the way.",
    ),
];

/// Adds the exit codes to the end of the help of a command.
pub(super) fn with_exit_codes(command: clap::Command) -> clap::Command {
    let mut text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    text.push_str("\n\nExit codes:");
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("\n  {code}  {meaning}"));
    }
    command.after_help(text)
}

/// The files of an installation.
const FILES: [(&str, &str); 4] = [
    ("/etc/limiter/policy.yaml", "The policy that the service follows, limiter-policy(5)."),
    ("/etc/default/limiter", "The interfaces of the service, and where it serves metrics."),
    ("/sys/fs/bpf/limiter", "Programs, policy and state of the instance, pinned in the kernel."),
    ("/usr/share/doc/limiter", "Example policies, algorithms, the reference of policies."),
];

#[derive(Debug, Args)]
pub(super) struct Man {
    /// Directory to write to; it is created if it does not exist
    directory: PathBuf,
}

impl Man {
    pub(super) fn run(&self, output: &mut Output) -> Result<()> {
        let mut root = command().disable_help_subcommand(true);
        root.build();
        let mut pages = Vec::new();
        let write = |pages: &mut Vec<String>| {
            fs::create_dir_all(&self.directory)?;
            self.write_all(&root, pages)?;
            self.write(policy::NAME, pages, policy::render)
        };
        write(&mut pages).map_err(|error| {
            Error::system(format!("write manual pages to {}", self.directory.display()), error)
        })?;
        if output.is_json() {
            return Ok(output.json(&json!({ "pages": pages }))?);
        }
        Ok(())
    }

    /// Writes the pages of a command and of all its subcommands.
    fn write_all(&self, command: &clap::Command, pages: &mut Vec<String>) -> io::Result<()> {
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            self.write_all(below, pages)?;
        }
        let page = Page::new(command.clone()).section(SECTION).source(SOURCE).manual("limiter");
        self.write(&page.get_filename(), pages, |to| render(&page, command, to))
    }

    fn write(
        &self,
        name: &str,
        pages: &mut Vec<String>,
        render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(Path::new(&self.directory).join(name))?);
        render(&mut file)?;
        pages.push(name.to_owned());
        file.flush()
    }
}

fn render(page: &Page, command: &clap::Command, to: &mut dyn Write) -> io::Result<()> {
    page.render_title(to)?;
    page.render_name_section(to)?;
    synopsis(command).to_writer(to)?;
    page.render_description_section(to)?;
    page.render_options_section(to)?;
    if command.get_subcommands().any(|it| !it.is_hide_set()) {
        page.render_subcommands_section(to)?;
    }
    let mut roff = Roff::new();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, examples) = after.split_once(HEADING).unwrap_or((&after, ""));
    if !notes.trim().is_empty() {
        roff.control("SH", ["NOTES"]);
        paragraphs(&mut roff, notes);
    }
    roff.control("SH", ["EXIT STATUS"]);
    definitions(&mut roff, EXIT_CODES);
    let is_root = command.get_display_name().is_none_or(|name| name == "limiter");
    if is_root {
        roff.control("SH", ["FILES"]);
        definitions(&mut roff, FILES);
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        // The examples end at an empty line, or at the end of the text.
        for line in examples.trim_start().lines().take_while(|line| !line.trim().is_empty()) {
            roff.control("PP", []);
            roff.text([bold(line.trim())]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let others = if is_root { "limiter-policy(5)" } else { "limiter(8), limiter-policy(5)" };
    roff.text([roman(others)]);
    roff.to_writer(to)
}

/// The section with the arguments of a command and their values: its own first, then those of every command.
fn synopsis(command: &clap::Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![bold(name)];
    let (global, own): (Vec<_>, Vec<_>) =
        command.get_opts().filter(|it| !it.is_hide_set()).partition(|it| it.is_global_set());
    let flags = command.get_arguments().filter(|it| is_flag(it) && !it.is_hide_set());
    let (global_flags, own_flags): (Vec<_>, Vec<_>) = flags
        .partition(|it| it.is_global_set() || ["help", "version"].contains(&it.get_id().as_str()));
    for option in own.into_iter().chain(own_flags) {
        words.extend(written(option));
    }
    for argument in command.get_positionals().filter(|it| !it.is_hide_set()) {
        words.extend(written(argument));
    }
    if command.get_subcommands().any(|it| !it.is_hide_set()) {
        words.extend([roman(" "), italic("COMMAND")]);
    }
    for option in global.into_iter().chain(global_flags) {
        words.extend(written(option));
    }
    roff.text(words);
    roff
}

fn is_flag(argument: &clap::Arg) -> bool {
    !argument.is_positional() && !argument.get_action().takes_values()
}

/// An argument as it is written: in brackets if it may be left out, with the names of its values.
fn written(argument: &clap::Arg) -> Vec<Inline> {
    let mut parts = Vec::new();
    if let Some(long) = argument.get_long() {
        parts.push(bold(format!("--{long}")));
    } else if let Some(short) = argument.get_short() {
        parts.push(bold(format!("-{short}")));
    }
    if argument.get_action().takes_values() {
        let id = argument.get_id().as_str().to_uppercase();
        let names = argument.get_value_names().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
        for name in if names.is_empty() { vec![&*id] } else { names } {
            if !parts.is_empty() {
                parts.push(roman(" "));
            }
            parts.push(italic(name));
        }
        let is_repeated = matches!(argument.get_action(), clap::ArgAction::Append)
            || argument.get_num_args().is_some_and(|number| number.max_values() > 1);
        if is_repeated {
            parts.push(roman("..."));
        }
    }
    let (open, close) = if argument.is_required_set() { (" ", "") } else { (" [", "]") };
    parts.insert(0, roman(open));
    parts.push(roman(close));
    parts
}

/// Adds paragraphs, which empty lines separate.
fn paragraphs(roff: &mut Roff, text: &str) {
    for paragraph in text.trim().split("\n\n") {
        roff.control("PP", []);
        roff.text([roman(paragraph.replace('\n', " "))]);
    }
}

fn definitions<const N: usize>(roff: &mut Roff, list: [(&str, &str); N]) {
    for (term, text) in list {
        roff.control("TP", []);
        roff.text([bold(term)]);
        roff.text([roman(text)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the synopsis of a command and of all below it. Returns the number of options that it saw.
    fn check(command: &clap::Command) -> usize {
        let mut text = Vec::new();
        synopsis(command).to_writer(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap().replace("\\-", "-");
        let plain =
            ["\\fB", "\\fI", "\\fR"].into_iter().fold(text, |it, font| it.replace(font, ""));
        let mut seen = 0;
        for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
            let values = match argument.get_action().takes_values() {
                true => argument.get_value_names().unwrap_or_default(),
                false => &[],
            };
            let option = argument.get_long().map(|long| format!("--{long}"));
            let words = option.into_iter().chain(values.iter().map(ToString::to_string));
            let words = words.collect::<Vec<_>>().join(" ");
            let places = plain.split(&words).skip(1);
            let is_whole = |rest: &str| rest.is_empty() || rest.starts_with([']', ' ', '.', '\n']);
            assert!(!words.is_empty() && places.clone().any(is_whole), "no {words} in {plain}");
            seen += usize::from(argument.get_action().takes_values());
        }
        seen + command.get_subcommands().filter(|it| !it.is_hide_set()).map(check).sum::<usize>()
    }

    #[test]
    fn the_synopsis_of_every_command_has_its_options_and_their_values() {
        let mut root = command().disable_help_subcommand(true);
        root.build();
        assert!(check(&root) > 100);
    }
}
