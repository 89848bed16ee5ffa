import Descriptors
import EventLoop
import NightbellCore

/// The duplicates of adopted sockets, by the slot of their token.
struct ParkedTable: ~Copyable {
    /// 16 bytes: there may be tens of thousands.
    struct Held: ~Copyable {
        let descriptor: OwnedDescriptor
        /// Of its token, whose slot is where this lies.
        let generation: UInt32
        /// The slot of the client that it belongs to.
        let owner: UInt32
        /// What its owner calls it.
        let name: SocketNames.Name
        let isOffloaded: Bool
        var watching = Watching.not

        /// What the loop's events about it carry.
        func watchToken(_ token: SocketToken) -> WatchToken {
            isOffloaded
                ? WatchToken(.offloadedSocket, id: token.rawValue)
                : WatchToken(.socket, id: token.rawValue, owner: owner)
        }

        consuming func release() -> OwnedDescriptor { descriptor }
    }

    enum Watching {
        /// It is not in the loop's set for what is urgent.
        case not
        case armed
        /// It is watched for bytes only: its end is known.
        case armedPastEnd
        /// It was reported, and is not to be again before it is armed.
        case fired
    }

    private var slots = UniqueSlots<Held>()
    /// Those that `noteFired` was told of in this turn and the kernel goes on watching.
    private var fired: [SocketToken] = []
    private var names = SocketNames()
    private let loop: LoopExecutor

    init(loop: LoopExecutor) { self.loop = loop }

    mutating func insert(
        _ descriptor: consuming OwnedDescriptor, as token: SocketToken, of owner: ClientID, name: String,
        isOffloaded: Bool = false
    ) {
        while slots.count <= Int(token.slot) { slots.append(nil) }
        slots[Int(token.slot)] = Held(
            descriptor: descriptor, generation: token.generation, owner: owner.slot,
            name: names.add(name, slot: token.slot), isOffloaded: isOffloaded)
    }

    /// Stops watching and closes the duplicate.
    mutating func remove(_ token: SocketToken) {
        guard contains(token) else { return }
        leaveSet(token)
        guard let held = slots[Int(token.slot)].take() else { return }
        names.remove(held.name, slot: token.slot)
        ForeignDescriptor.close(held.release())
    }

    func contains(_ token: SocketToken) -> Bool { self.token(inSlot: token.slot) == token }

    /// Gives up memory that many sockets needed which are gone.
    mutating func giveMemoryBack() { slots.removeFreeAtEnd() }

    // MARK: Watching

    /// Watches a socket that `contains` knows. What it fired for may still be unread, and is told again.
    mutating func arm(_ token: SocketToken) throws(LoopError) {
        switch slots[Int(token.slot)] {
        case .some(let held):
            // One with a profile is reported again and again, for as long as nobody has to be woken.
            try loop.urgent.arm(
                held.descriptor.rawValue, held.isOffloaded ? .edge : .oneShot,
                isMember: held.watching != .not, token: held.watchToken(token).rawValue)
        case .none:
            return
        }
        slots[Int(token.slot)]?.watching = .armed
    }

    /// Watches a socket that `contains` knows for bytes past an end that is still reported, once: its events thaw
    /// nobody before `SocketTraffic.hasUnread` was asked.
    mutating func armPastEnd(_ token: SocketToken) throws(LoopError) {
        switch slots[Int(token.slot)] {
        case .some(let held):
            try loop.urgent.arm(
                held.descriptor.rawValue, .edge, isMember: held.watching != .not,
                token: WatchToken(.socket, id: token.rawValue).rawValue)
        case .none:
            return
        }
        slots[Int(token.slot)]?.watching = .armedPastEnd
    }

    /// Has a socket that was reported watched no longer, once `endTurn` is called.
    mutating func noteFired(_ token: SocketToken) {
        // What comes again and again may have been reported before it was left alone.
        guard contains(token), isWatched(token) else { return }
        // The kernel has ceased to watch the others by itself.
        if isOffloaded(token) || isArmedPastEnd(token) { fired.append(token) }
        slots[Int(token.slot)]?.watching = .fired
    }

    mutating func endTurn() {
        for token in fired where contains(token) && hasFired(token) { leaveSet(token) }
        fired.removeAll(keepingCapacity: true)
    }

    /// Must come before the close: the kernel would go on reporting the number as long as the owner's descriptor lives.
    private mutating func leaveSet(_ token: SocketToken) {
        switch slots[Int(token.slot)] {
        case .some(let held): if held.watching != .not { loop.urgent.remove(held.descriptor.rawValue) }
        case .none: break
        }
        slots[Int(token.slot)]?.watching = .not
    }

    private func isOffloaded(_ token: SocketToken) -> Bool {
        switch slots[Int(token.slot)] {
        case .some(let held): held.isOffloaded
        case .none: false
        }
    }

    private func isWatched(_ token: SocketToken) -> Bool {
        switch slots[Int(token.slot)] {
        case .some(let held): held.watching != .not
        case .none: false
        }
    }

    func isArmedPastEnd(_ token: SocketToken) -> Bool {
        switch slots[Int(token.slot)] {
        case .some(let held): held.watching == .armedPastEnd
        case .none: false
        }
    }

    private func hasFired(_ token: SocketToken) -> Bool {
        switch slots[Int(token.slot)] {
        case .some(let held): held.watching == .fired
        case .none: false
        }
    }

    // MARK: Looking up

    func descriptor(of token: SocketToken) -> CInt? {
        guard contains(token) else { return nil }
        switch slots[Int(token.slot)] {
        case .some(let held): return held.descriptor.rawValue
        case .none: return nil
        }
    }

    func name(of token: SocketToken) -> String {
        guard contains(token) else { return "" }
        switch slots[Int(token.slot)] {
        case .some(let held): return names.text(of: held.name, slot: token.slot)
        case .none: return ""
        }
    }

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
