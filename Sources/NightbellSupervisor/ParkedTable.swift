import Descriptors
import EventLoop
import NightbellCore

/// The duplicates of adopted sockets, by the slot of their token.
struct ParkedTable: ~Copyable {
    /// 16 bytes: there may be tens of thousands.
    struct Held: ~Copyable {
        /// Marked when it was reported and is to be disarmed at the end of the turn, unless it is armed again.
        let watch: Watch
        let descriptor: OwnedDescriptor
        /// Of its token, whose slot is where this lies.
        let generation: UInt32

        /// Gives up the watch, then the descriptor.
        consuming func release() -> OwnedDescriptor { descriptor }
    }

    private var slots = UniqueSlots<Held>()
    /// Those that `noteFired` was told of in this turn.
    private var fired: [SocketToken] = []
    /// The names that owners gave; most sockets have none.
    private var names: [UInt32: String] = [:]

    mutating func insert(
        _ descriptor: consuming OwnedDescriptor, as token: SocketToken, of owner: ClientID, name: String,
        isOffloaded: Bool = false, loop: LoopExecutor
    ) throws(LoopError) {
        let watchToken =
            isOffloaded
            ? WatchToken(.offloadedSocket, id: token.rawValue)
            : WatchToken(.socket, id: token.rawValue, owner: owner.slot)
        let watch = try loop.watch(
            descriptor.rawValue, .readOrClosed, .edge, token: watchToken.rawValue)
        while slots.count <= Int(token.slot) { slots.append(nil) }
        slots[Int(token.slot)] = Held(watch: watch, descriptor: descriptor, generation: token.generation)
        if !name.isEmpty { names[token.slot] = name }
    }

    /// Stops watching and closes the duplicate.
    mutating func remove(_ token: SocketToken) {
        guard contains(token) else { return }
        // Before the close: epoll would go on reporting the number as long as the owner's descriptor lives.
        if let held = slots[Int(token.slot)].take() {
            held.watch.disarm()
            ForeignDescriptor.close(held.release())
        }
        names[token.slot] = nil
    }

    func contains(_ token: SocketToken) -> Bool { self.token(inSlot: token.slot) == token }

    /// Has a socket that was reported watched no longer, once `endTurn` is called. A one-shot watch of the loop
    /// would be disarmed before anybody is told, and a sleeper would wait for that.
    mutating func noteFired(_ token: SocketToken) {
        guard contains(token) else { return }
        mark(token, true)
        fired.append(token)
    }

    mutating func endTurn() {
        for token in fired where contains(token) && hasFired(token) {
            mark(token, false)
            disarm(token)
        }
        fired.removeAll(keepingCapacity: true)
    }

    private func hasFired(_ token: SocketToken) -> Bool {
        switch slots[Int(token.slot)] {
        case .some(let held): held.watch.isMarked
        case .none: false
        }
    }

    private func mark(_ token: SocketToken, _ hasFired: Bool) {
        switch slots[Int(token.slot)] {
        case .some(let held): held.watch.isMarked = hasFired
        case .none: break
        }
    }

    private func disarm(_ token: SocketToken) {
        switch slots[Int(token.slot)] {
        case .some(let held): held.watch.disarm()
        case .none: break
        }
    }

    /// Watches a socket that `contains` knows.
    mutating func arm(_ token: SocketToken) throws(LoopError) {
        mark(token, false)
        switch slots[Int(token.slot)] {
        case .some(let held):
            // What it fired for may still be unread, and is told again only to a watch that is new.
            if held.watch.isArmed { held.watch.disarm() }
            try held.watch.arm()
        case .none:
            break
        }
    }

    func descriptor(of token: SocketToken) -> CInt? {
        guard contains(token) else { return nil }
        switch slots[Int(token.slot)] {
        case .some(let held): return held.descriptor.rawValue
        case .none: return nil
        }
    }

    func name(of token: SocketToken) -> String { names[token.slot] ?? "" }

    /// The socket that an event of the loop is about, unless it is gone.
    func token(for watch: WatchToken) -> SocketToken? {
        guard let token = token(inSlot: watch.slot), watch.names(token.rawValue) else { return nil }
        return token
    }

    private func token(inSlot slot: UInt32) -> SocketToken? {
        guard Int(slot) < slots.count else { return nil }
        switch slots[Int(slot)] {
        case .some(let held): return SocketToken(slot: slot, generation: held.generation)
        case .none: return nil
        }
    }
}
