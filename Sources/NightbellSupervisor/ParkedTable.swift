import BasicContainers
import Descriptors
import EventLoop
import NightbellCore

/// The duplicates of adopted sockets, by the slot of their token.
struct ParkedTable: ~Copyable {
    struct Slot: ~Copyable {
        /// `nil`: the slot is free.
        var token: SocketToken?
        var held: Held?

        borrowing func arm() throws(LoopError) {
            switch held {
            case .some(let held): try held.watch.arm()
            case .none: break
            }
        }

        borrowing func disarm() {
            switch held {
            case .some(let held): held.watch.disarm()
            case .none: break
            }
        }

        var descriptor: CInt? {
            switch held {
            case .some(let held): held.descriptor.rawValue
            case .none: nil
            }
        }
    }

    struct Held: ~Copyable {
        let watch: Watch
        let descriptor: OwnedDescriptor
    }

    private var slots = UniqueArray<Slot>()
    /// The names that owners gave; most sockets have none.
    private var names: [UInt32: String] = [:]

    mutating func insert(
        _ descriptor: consuming OwnedDescriptor, as token: SocketToken, name: String, loop: LoopExecutor
    ) throws(LoopError) {
        let watch = try loop.watch(
            descriptor.rawValue, [.read, .closed], .oneShot,
            token: WatchToken(.socket, id: token.rawValue).rawValue)
        while slots.count <= Int(token.slot) { slots.append(Slot()) }
        slots[Int(token.slot)] = Slot(token: token, held: Held(watch: watch, descriptor: descriptor))
        if !name.isEmpty { names[token.slot] = name }
    }

    /// Stops watching and closes the duplicate.
    mutating func remove(_ token: SocketToken) {
        guard contains(token) else { return }
        // Before the close: epoll would go on reporting the number as long as the owner's descriptor lives.
        slots[Int(token.slot)].disarm()
        slots[Int(token.slot)] = Slot()
        names[token.slot] = nil
    }

    func contains(_ token: SocketToken) -> Bool {
        Int(token.slot) < slots.count && slots[Int(token.slot)].token == token
    }

    /// Watches a socket that `contains` knows.
    func arm(_ token: SocketToken) throws(LoopError) {
        try slots[Int(token.slot)].arm()
    }

    func descriptor(of token: SocketToken) -> CInt? {
        contains(token) ? slots[Int(token.slot)].descriptor : nil
    }

    func name(of token: SocketToken) -> String { names[token.slot] ?? "" }

    /// The socket that an event of the loop is about, unless it is gone.
    func token(for watch: WatchToken) -> SocketToken? {
        guard Int(watch.slot) < slots.count, let token = slots[Int(watch.slot)].token,
            watch.names(token.rawValue)
        else { return nil }
        return token
    }
}
