import EventLoop
import LinuxSystem
import NightbellCore

/// The duplicates of adopted sockets, by the slot of their token.
struct ParkedTable: ~Copyable {
    /// 16 bytes: there may be tens of thousands.
    struct Held: ~Copyable {
        let descriptor: OwnedDescriptor
        /// The generation of its token; the index is the token's slot.
        let generation: UInt32
        /// The slot of its owner's client ID.
        let owner: UInt32
        /// The owner's name for it.
        let name: SocketNames.Name
        let isOffloaded: Bool
        var watching = Watching.not

        /// The token in the loop's events about it.
        func watchToken(_ token: SocketToken) -> WatchToken {
            isOffloaded
                ? WatchToken(.offloadedSocket, id: token.rawValue)
                : WatchToken(.socket, id: token.rawValue, owner: owner)
        }

        consuming func release() -> OwnedDescriptor { descriptor }
    }

    enum Watching {
        /// Not in the urgent set.
        case not
        case armed
        /// Watched for bytes only: its end is known.
        case armedPastEnd
        /// Reported, and not to be reported again before it is armed.
        case fired
    }

    private var slots = UniqueSlots<Held>()
    /// The sockets passed to `noteFired` in this turn that the kernel still watches.
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

    /// Stops watching and closes the duplicate, which may have to wait for others of the same user.
    mutating func remove(_ token: SocketToken, of user: UserID) {
        guard contains(token) else { return }
        leaveSet(token)
        guard let held = slots[Int(token.slot)].take() else { return }
        names.remove(held.name, slot: token.slot)
        ForeignDescriptor.close(held.release(), of: user)
    }

    func contains(_ token: SocketToken) -> Bool { self.token(inSlot: token.slot) == token }

    /// Releases memory of slots that are no longer in use.
    mutating func giveMemoryBack() { slots.removeFreeAtEnd() }

    // MARK: Watching

    /// Watches a socket that `contains` knows. If its input is still unread, it fires again.
    mutating func arm(_ token: SocketToken) throws(LoopError) {
        switch slots[Int(token.slot)] {
        case .some(let held):
            // A socket with a profile is reported again and again, until its owner has to be woken.
            try loop.urgent.arm(
                held.descriptor.rawValue, held.isOffloaded ? .edgeWithUrgentData : .oneShot,
                isMember: held.watching != .not, token: held.watchToken(token).rawValue)
        case .none:
            return
        }
        slots[Int(token.slot)]?.watching = .armed
    }

    /// Watches a socket that `contains` knows, once, for bytes past an end that is still reported: its events
    /// thaw no owner before `SocketTraffic.hasUnread` has been checked.
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

    /// Stops watching a socket that was reported, at the next `endTurn`.
    mutating func noteFired(_ token: SocketToken) {
        // A socket watched for edges may have been reported again before it was disarmed.
        guard contains(token), isWatched(token) else { return }
        // The others are one-shot: the kernel has stopped watching them.
        if isOffloaded(token) || isArmedPastEnd(token) { fired.append(token) }
        slots[Int(token.slot)]?.watching = .fired
    }

    mutating func endTurn() {
        for token in fired where contains(token) && hasFired(token) { leaveSet(token) }
        fired.removeAll(keepingCapacity: true)
    }

    /// Must come before the close: the kernel would go on reporting the number as long as the owner's
    /// descriptor is open.
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

    // MARK: Lookup

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

    /// The socket that a loop event is about, unless it is gone.
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
