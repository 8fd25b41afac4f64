//! How many connections a server has at a time, of all clients and of each, so that none keeps others out.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most connections at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of all clients together, without the privileged one.
    pub all: usize,
    /// Of each client but the privileged one.
    pub of_each: usize,
    /// Of the privileged client, beside those of all others.
    pub reserved: usize,
}

impl Limits {
    /// The most connections of all clients, the privileged one included.
    pub const fn total(self) -> usize {
        self.all.saturating_add(self.reserved)
    }
}

/// Why a client has no further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The client has its share, which is so many.
    OfClient(usize),
    /// All clients together have so many.
    All(usize),
}

/// The connections of a server's clients.
#[derive(Clone, Debug)]
pub struct Connections<C: Ord>(Arc<Counted<C>>);

#[derive(Debug)]
struct Counted<C> {
    limits: Limits,
    privileged: C,
    /// Of each client that has some.
    counts: Mutex<BTreeMap<C, usize>>,
}

/// A connection of a client, which counts until this is dropped.
#[derive(Debug)]
pub struct Held<C: Ord> {
    of: Connections<C>,
    client: C,
}

impl<C: Ord + Clone> Connections<C> {
    /// None yet. The connections of the privileged client are not taken from the others', and not by them.
    pub fn new(limits: Limits, privileged: C) -> Self {
        Self(Arc::new(Counted { limits, privileged, counts: Mutex::default() }))
    }

    /// Counts one more connection of a client.
    ///
    /// # Errors
    /// The client, or all of them, have as many as they may.
    pub fn hold(&self, client: C) -> Result<Held<C>, Full> {
        let Counted { limits, privileged, .. } = &*self.0;
        let mut counts = self.0.counts();
        let of_client = counts.get(&client).copied().unwrap_or(0);
        let is_privileged = client == *privileged;
        let most = if is_privileged { limits.reserved } else { limits.of_each };
        if of_client >= most {
            return Err(Full::OfClient(most));
        }
        let others = counts.iter().filter(|(of, _)| *of != privileged).map(|(_, count)| count);
        if !is_privileged && others.sum::<usize>() >= limits.all {
            return Err(Full::All(limits.all));
        }
        counts.insert(client.clone(), of_client + 1);
        drop(counts);
        Ok(Held { of: self.clone(), client })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.counts().values().sum()
    }
}

impl<C> Counted<C> {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<C, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Ord> Drop for Held<C> {
    fn drop(&mut self) {
        let mut counts = self.of.0.counts();
        match counts.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.client)),
        }
    }
}

/// This machine as [`client_of`] gives it.
pub const THIS_MACHINE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The client that a peer belongs to: this machine for all of its addresses, as any process on it can take
/// any of them; the network of 64 bits for IPv6, in which a host chooses its address (RFC 4291, section
/// 2.5.1); else the address.
pub fn client_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        address if address.is_loopback() || is_of_this_machine(peer) => THIS_MACHINE,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        IpAddr::V4(address) => address.into(),
    }
}

/// Whether an interface has the address: then a socket can be bound to it. Where the kernel allows any
/// address to be bound (`ip_nonlocal_bind`, ip-sysctl.rst), this is unknown, and the answer is no.
fn is_of_this_machine(peer: SocketAddr) -> bool {
    let family = if peer.is_ipv4() { "ipv4" } else { "ipv6" };
    let any = std::fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    let mut address = peer;
    address.set_port(0);
    any.is_ok_and(|any| any.trim() == "0") && UdpSocket::bind(address).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_takes_what_others_have() {
        let connections = Connections::new(Limits { all: 5, of_each: 2, reserved: 3 }, 0);
        let hold = |client: u32| connections.hold(client);
        let mut held: Vec<_> = [1, 1, 2, 2, 3].map(|client| hold(client).unwrap()).into();
        assert_eq!(hold(1).unwrap_err(), Full::OfClient(2));
        assert_eq!(hold(3).unwrap_err(), Full::All(5));
        assert_eq!(hold(4).unwrap_err(), Full::All(5));
        held.extend([0, 0, 0].map(|root| hold(root).unwrap()));
        assert_eq!((hold(0).unwrap_err(), connections.count()), (Full::OfClient(3), 8));
        // One of client 1 ends, which is the one that client 4 gets.
        drop(held.remove(0));
        held.push(hold(4).unwrap());
        assert_eq!(hold(1).unwrap_err(), Full::All(5));
        drop(held);
        assert_eq!(connections.count(), 0);
        assert!(connections.0.counts().is_empty());
    }

    #[test]
    fn a_machine_is_one_client_whatever_address_it_chooses() {
        for (address, client) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.9.8.7", "127.0.0.1"),
            ("::1", "127.0.0.1"),
            ("::ffff:127.1.1.1", "127.0.0.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let peer = SocketAddr::new(address.parse().unwrap(), 4711);
            assert_eq!(client_of(peer), client.parse::<IpAddr>().unwrap(), "{address}");
        }
    }

    #[test]
    fn an_address_is_of_this_machine_if_an_interface_has_it() {
        // TEST-NET-1 and its like for IPv6 are nobody's (RFC 5737, RFC 3849).
        for (address, has) in
            [("127.0.0.1:4711", true), ("192.0.2.1:4711", false), ("[2001:db8::1]:4711", false)]
        {
            assert_eq!(is_of_this_machine(address.parse().unwrap()), has, "{address}");
        }
    }
}
