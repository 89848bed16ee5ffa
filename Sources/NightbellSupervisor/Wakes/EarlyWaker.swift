import EventLoop
import Keeper
import LinuxSystem
import Suspension

/// The first step of a wake: thaws a sleeper when its socket fires, and tells it by its wake word that its
/// sockets are its own again, so that it can read while the supervisor finds out what happened, decides and
/// sends the wake.
///
/// Between a packet and the first byte that its owner reads, every line of code and of memory counts that is
/// not in the processor's caches: the machine was idle. So this type is separate, finds all that it needs in
/// one record, calls nothing of Swift's runtime, and runs before the loop enters the actor. Confined to the
/// loop's thread, as is everything it uses.
@safe
final class EarlyWaker {
    @unsafe private struct Sleeper {
        /// The current suspension; 0: none that a socket may end early.
        var epoch: UInt64 = 0
        /// How to end it.
        var thaw = QuickThaw.none
        /// A socket has ended it, and the core has not been told yet.
        var isThawed = false
        /// Its wake word, if it has one, and where that is.
        var word: SharedPage.Word?
        var place: WakeWords.Place?
    }

    /// Indexed by the slots of the client IDs. Not an array: the runtime would guard it against overlapping
    /// access.
    private var sleepers: UnsafeMutablePointer<Sleeper>
    private var capacity = 64
    private var words = WakeWords()

    init() {
        unsafe sleepers = .allocate(capacity: capacity)
        unsafe sleepers.initialize(repeating: Sleeper(), count: capacity)
    }

    deinit {
        unsafe sleepers.deallocate()
    }

    /// Wakes the owner of the socket that this event is about, if it sleeps and may be woken this way. The
    /// suspender does not know of it yet: see `hasThawed`.
    ///
    /// - Returns: whether a sleeper was to be woken; also true if the thaw failed, which `hasThawed` tells
    ///   apart.
    func wake(_ ready: Ready) -> Bool {
        guard let owner = WatchToken(rawValue: ready.token).owner, owner < capacity else { return false }
        let sleeper = unsafe sleepers + Int(owner)
        guard unsafe sleeper.pointee.epoch != 0 else { return false }
        if let word = unsafe sleeper.pointee.word {
            let conditions: UInt64 = (ready.readable ? 1 : 0) | (ready.closed ? 2 : 0)
            unsafe word.store(sleeper.pointee.epoch << 8 | conditions)
        }
        unsafe sleeper.pointee.epoch = 0
        // If it fails, the thaw that the core asks for reports the error.
        unsafe sleeper.pointee.isThawed = sleeper.pointee.thaw.perform()
        FaultInjection.point("after an early thaw")
        return true
    }

    // MARK: Sleepers

    /// From now on its sockets may thaw this client, until `clear` or `remove`. Call one of them before
    /// `thaw` becomes invalid.
    func set(_ slot: UInt32, epoch: UInt64, thaw: QuickThaw) {
        guard slot < capacity else { return }
        unsafe sleepers[Int(slot)].epoch = epoch
        unsafe sleepers[Int(slot)].thaw = thaw
        unsafe sleepers[Int(slot)].isThawed = false
    }

    /// It is awake, or about to be.
    func clear(_ slot: UInt32) {
        guard slot < capacity else { return }
        unsafe sleepers[Int(slot)].epoch = 0
        unsafe sleepers[Int(slot)].isThawed = false
    }

    /// Whether a socket has thawed it and the core is about to be told, or has been told in this turn. Tell
    /// the suspender first (`markThawed`), or it takes the client for stopped.
    func hasThawed(_ slot: UInt32) -> Bool { unsafe slot < capacity && sleepers[Int(slot)].isThawed }

    // MARK: Clients

    /// Descriptors in use.
    var pageCount: Int { words.pageCount }

    /// - Returns: the descriptor of its wake word and the index in it; nil if it wants none.
    func add(
        _ slot: UInt32, user: UInt32, wantsWord: Bool
    ) throws(SystemError) -> (descriptor: CInt, index: UInt16)? {
        if slot >= capacity { grow(beyond: Int(slot)) }
        unsafe sleepers[Int(slot)] = Sleeper()
        guard wantsWord else { return nil }
        let place = try words.allocate(user: user)
        unsafe sleepers[Int(slot)].place = place
        unsafe sleepers[Int(slot)].word = words.word(at: place)
        return (words.descriptor(for: place), place.index)
    }

    func remove(_ slot: UInt32, user: UInt32) {
        guard slot < capacity else { return }
        let place = unsafe sleepers[Int(slot)].place
        unsafe sleepers[Int(slot)] = Sleeper()
        if let place { words.giveBack(place, user: user) }
    }

    private func grow(beyond slot: Int) {
        // Grow by an eighth, as the supervisor's other tables do: there are thousands of clients.
        let larger = max(slot + 1, capacity + capacity / 8)
        let moved = UnsafeMutablePointer<Sleeper>.allocate(capacity: larger)
        unsafe moved.moveInitialize(from: sleepers, count: capacity)
        unsafe (moved + capacity).initialize(repeating: Sleeper(), count: larger - capacity)
        unsafe sleepers.deallocate()
        unsafe sleepers = moved
        capacity = larger
    }
}
