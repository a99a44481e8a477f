//! The display of a watch: a screen or lines.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use super::{lines::Lines, observer::Observer, stop::Who, terminal::Screen};
use crate::{
    output::stream::Output,
    watch::{data_source::DataSource, options::WatchError},
};

/// A screen, or lines of an output.
pub(super) enum Display<'a, W: Write> {
    Screen(Screen),
    Lines(Lines, &'a mut Output<W>),
}

impl<W: Write> Display<'_, W> {
    /// Shows the first reading. Lines have nothing to show before the second reading, as there is
    /// no rate yet.
    pub(super) fn begin<S: DataSource>(
        &mut self,
        watch: &mut Observer<S>,
    ) -> Result<(), WatchError> {
        match self {
            Self::Screen(_) => self.show(watch),
            Self::Lines(..) => Ok(()),
        }
    }

    /// Shows the view, unless the shell has the terminal.
    pub(super) fn show<S: DataSource>(
        &mut self,
        watch: &mut Observer<S>,
    ) -> Result<(), WatchError> {
        match self {
            Self::Screen(screen) if screen.is_left() => Ok(()),
            Self::Screen(screen) => {
                watch.view.clock = SystemTime::now();
                watch.stand(false);
                let drawn = screen.draw(&watch.view).map_err(WatchError::Terminal)?;
                // The new size may show more rows, whose standings are then read.
                if watch.view.drew(drawn) {
                    watch.stand(false);
                    screen.draw(&watch.view).map_err(WatchError::Terminal)?;
                }
                Ok(())
            }
            Self::Lines(lines, output) => {
                Ok(lines.print(output, &watch.view, SystemTime::now())?)
            }
        }
    }

    /// Shows that readings fail, if they do for long.
    pub(super) fn late<S: DataSource>(
        &mut self,
        watch: &mut Observer<S>,
    ) -> Result<(), WatchError> {
        match self {
            Self::Screen(_) => self.show(watch),
            Self::Lines(lines, _) => {
                if let Some(said) = lines.late(&watch.view) {
                    // An error of standard error cannot be reported anywhere.
                    let _ = writeln!(io::stderr(), "{said}");
                }
                Ok(())
            }
        }
    }

    /// Makes a screen draw everything anew.
    pub(super) fn clear(&mut self) -> Result<(), WatchError> {
        match self {
            Self::Screen(screen) => screen.clear().map_err(WatchError::Terminal),
            Self::Lines(..) => Ok(()),
        }
    }

    /// Gives the terminal of a screen back to the shell, and stops the process.
    pub(super) fn leave(&mut self, who: Who) -> Result<(), WatchError> {
        match self {
            Self::Screen(screen) => screen.leave(who).map_err(WatchError::Terminal),
            Self::Lines(..) => Ok(()),
        }
    }

    /// Whether the shell has the terminal of a screen.
    pub(super) const fn is_left(&self) -> bool {
        matches!(self, Self::Screen(screen) if screen.is_left())
    }

    /// Takes over the terminal of a screen again.
    pub(super) fn again(&mut self) -> Result<(), WatchError> {
        match self {
            Self::Screen(screen) => screen.again().map_err(WatchError::Terminal),
            Self::Lines(..) => Ok(()),
        }
    }

    /// Whether the reader of the lines has closed the pipe.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Screen(_) => false,
            Self::Lines(_, output) => output.is_closed(),
        }
    }
}
