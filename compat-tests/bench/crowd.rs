//! Many connections on one thread, as an event loop has them: whoever is answered is served next, and nobody waits for another.
//!
//! The thread never sleeps. Clients have machines of their own; here the kernel would charge the broker with waking them, and to wake a thread
//! on another core can cost as much as a whole request.

use std::os::fd::OwnedFd;

use anyhow::Result;
use compat_tests::wire::Client;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// The connections by their numbers, from 0.
pub struct Crowd {
    poll: OwnedFd,
    clients: Vec<Client>,
    events: Vec<epoll::Event>,
}

impl Crowd {
    pub fn new() -> Result<Self> {
        Ok(Self { poll: epoll::create(epoll::CreateFlags::CLOEXEC)?, clients: Vec::new(), events: Vec::with_capacity(1024) })
    }

    pub fn add(&mut self, client: Client) -> Result<()> {
        epoll::add(&self.poll, &client, epoll::EventData::new_u64(self.clients.len() as u64), epoll::EventFlags::IN)?;
        self.clients.push(client);
        Ok(())
    }

    pub fn client(&mut self, nth: usize) -> &mut Client {
        &mut self.clients[nth]
    }

    /// Whose answer is here by now.
    pub fn answered(&mut self) -> Result<Vec<usize>> {
        self.events.clear();
        epoll::wait(&self.poll, spare_capacity(&mut self.events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        self.events.iter().map(|event| Ok(usize::try_from(event.data.u64())?)).collect()
    }
}
