//! `limiter policy import`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::{
    bridge::decide,
    cli::stderr::{warn, warn_of_document},
    error::{Error, Result},
    output::stream::Output,
    policy::{
        Policy,
        document::{parse, ratelimit, read_document, to_yaml},
        reading::name,
    },
};

/// The most files of a folder.
const MOST_FILES: usize = 1_000;

const HELP: &str = "\
Each domain and key becomes a limit with `on: requests`, which `limiter bridge --grpc` answers Envoy by. The standard error tells \
what is lost. Check the document, and start it with `mode: monitor`.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::cli) struct Import {
    /// What the configuration is of
    #[arg(long, value_enum, value_name = "KIND")]
    from: From,
    /// Algorithm of the limits
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Algorithm::SlidingWindow)]
    algorithm: Algorithm,
    /// The configuration, in YAML, also in a ConfigMap of Kubernetes; a folder of such files; or - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// Envoy's rate limit service (github.com/envoyproxy/ratelimit)
    Ratelimit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Algorithm {
    /// About the limit in the last unit
    SlidingWindow,
    /// The limit in each unit of the clock, as there
    FixedWindow,
    /// The limit at once, and as much again over a unit
    TokenBucket,
}

impl Import {
    pub(super) fn run(&self, output: &mut Output) -> Result<()> {
        let From::Ratelimit = self.from;
        let algorithm = match self.algorithm {
            Algorithm::SlidingWindow => ratelimit::WindowAlgorithm::SlidingWindow,
            Algorithm::FixedWindow => ratelimit::WindowAlgorithm::FixedWindow,
            Algorithm::TokenBucket => ratelimit::WindowAlgorithm::TokenBucket,
        };
        let mut policy = Policy::default();
        for file in files(&self.file, output)? {
            let failed = |error| Error::system(format!("read {}", name(&file)), error);
            let text = read_document(&file)
                .map_err(|error| failed(io::Error::other(error.to_string())))?;
            for warnings in ratelimit::import(&name(&file), &text, algorithm, &mut policy)? {
                warn_of_document(&warnings, output);
            }
        }
        let yaml = to_yaml(&policy);
        // What a document cannot have is told as a fault of the one that would be printed.
        parse("the document", yaml.as_bytes(), &mut |_| Ok(Vec::new()))?;
        decide::check(&policy).map_err(|error| Error::Impossible {
            file: name(&self.file),
            error: Box::new(error),
        })?;
        if output.is_json() {
            return Ok(output.shape("limiter.import/1", &json!({ "policy": yaml }))?);
        }
        Ok(write!(output, "{yaml}")?)
    }
}

/// The file, or those of a folder, in the order of their names. Warns of folders in it, whose files are left out.
fn files(path: &Path, output: &Output) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error| Error::system(format!("read {}", name(path)), error);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        // Kubernetes keeps what it mounts in folders whose names begin so.
        let is_hidden =
            || file.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"."));
        if file.is_dir() {
            if !is_hidden() {
                let folder = name(&file);
                warn(
                    &format!("{folder} is a folder: its files are left out; import it alone"),
                    output,
                );
            }
        } else if file.extension().is_some_and(|it| it == "yaml" || it == "yml") {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() || files.len() > MOST_FILES {
        let message = format!("it has {} files .yaml or .yml; give 1 to {MOST_FILES}", files.len());
        return Err(failed(io::Error::other(message)));
    }
    Ok(files)
}
