//! The model's moves between its two data directories: whole with appends meanwhile, given up, and cut short at any call.

use super::*;
use parking_lot::Mutex;

impl World {
    /// The data directory that the partition isn't in.
    fn other_dir(&self, partition: usize) -> &'static Path {
        Path::new(if self.dir(partition).starts_with("/a") { "/b" } else { "/a" })
    }

    /// The move ends where it was to, and what is appended meanwhile is there.
    pub fn move_partition(&mut self, partition: usize) {
        let (log, to) = (self.log(partition), self.other_dir(partition));
        let few = self.random.below(4);
        let batches: Vec<_> = (0..few).map(|_| self.records()).collect();
        let to_append = Mutex::new(batches.into_iter());
        let appended = Mutex::new(Vec::new());
        let pace = |_| {
            if let Some(records) = to_append.lock().next() {
                let batch = Self::build(&records, BatchBuilder::new(Compression::None));
                let done = log.append(self.now, batch, Origin::Client).unwrap();
                done.sync_to.map_or(Ok(()), |offset| log.sync_to(offset)).unwrap();
                appended.lock().push((done, records));
            }
            true
        };
        let logs = self.logs.as_ref().unwrap();
        logs.move_to(&log, to).unwrap();
        let moved = logs.run_moves(self.now, &pace);
        assert!(moved.iter().all(|(_, result)| result.is_ok()), "{:?}", moved.iter().map(|(_, result)| result).collect::<Vec<_>>());
        for (done, records) in appended.into_inner() {
            self.note(partition, &done, &records, -1);
        }
        assert!(self.dir(partition).starts_with(to), "it is where it was asked to be");
        self.note_durable();
        let model = &self.models[partition];
        assert_eq!(model.durable, model.log_end, "all that moved is durable");
        self.check_all();
    }

    /// Asked back to where it is, it stays there.
    pub fn give_up_a_move(&mut self, partition: usize) {
        let (log, here, to) = (self.log(partition), self.dir(partition), self.other_dir(partition));
        let logs = self.logs.as_ref().unwrap();
        logs.move_to(&log, to).unwrap();
        logs.move_to(&log, here.parent().unwrap()).unwrap();
        logs.run_moves(self.now, &|_| true);
        assert_eq!(self.dir(partition), here);
        let left = self
            .disk
            .list(to)
            .unwrap()
            .into_iter()
            .find(|entry| entry.name.starts_with(&format!("t-{partition}.")) && entry.name.ends_with("-future"));
        assert_eq!(left, None);
    }

    pub fn crash_while_moving(&mut self, partition: usize) {
        let (log, to) = (self.log(partition), self.other_dir(partition));
        self.disk.fail_after(self.random.below(60));
        let logs = self.logs.as_ref().unwrap();
        if logs.move_to(&log, to).is_ok() {
            logs.run_moves(self.now, &|_| true);
        }
        drop(log);
        let power = self.random.one_in(2);
        self.crash(power);
    }
}
