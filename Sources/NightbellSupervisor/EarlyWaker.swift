import Descriptors
import EventLoop
import Suspension

/// The first step of a wake: lets a sleeper run whose socket fired, and tells it by its wake word that its sockets
/// are its own again, so that it can read while the supervisor finds out what happened, decides and tells.
///
/// Between a packet and the first byte that its owner reads, every line of code and of memory counts that the
/// processor does not have at hand: the machine was idle. So this is apart from the rest, looks into one flat table,
/// and comes before the loop even enters the actor. Confined to the loop's thread, as all it uses is.
final class EarlyWaker {
    private struct Sleeper {
        /// The suspension that is under way; 0: none that a socket may end early.
        var epoch: UInt64 = 0
        /// A socket has ended it, and the core has not heard of that yet.
        var isThawed = false
        /// Its wake word, if it has one.
        var word: WakeWords.Place?
    }

    /// By the slots of the client IDs.
    private var sleepers: [Sleeper] = []
    private var words = WakeWords()
    private let suspender: any Suspender

    init(_ suspender: any Suspender) {
        self.suspender = suspender
    }

    /// The core hears of it afterwards; that it is thawed again then costs nothing, and reports it if this fails.
    ///
    /// - Returns: whether there was somebody to wake.
    func wake(_ ready: Ready) -> Bool {
        guard let owner = WatchToken(rawValue: ready.token).owner, owner < sleepers.count,
            sleepers[Int(owner)].epoch != 0
        else { return false }
        if let word = sleepers[Int(owner)].word {
            let conditions: UInt64 = (ready.readable ? 1 : 0) | (ready.closed ? 2 : 0)
            words.store(sleepers[Int(owner)].epoch << 8 | conditions, at: word)
        }
        sleepers[Int(owner)].epoch = 0
        sleepers[Int(owner)].isThawed = true
        try? suspender.thaw(slot: owner)
        return true
    }

    // MARK: Who sleeps

    /// From now on its sockets may thaw this client.
    func set(_ slot: UInt32, epoch: UInt64) {
        sleepers[Int(slot)].epoch = epoch
        sleepers[Int(slot)].isThawed = false
    }

    /// It is awake, or about to be.
    func clear(_ slot: UInt32) {
        guard slot < sleepers.count else { return }
        sleepers[Int(slot)].epoch = 0
        sleepers[Int(slot)].isThawed = false
    }

    /// Whether a socket has thawed it in this turn and the core is about to hear of that.
    func hasThawed(_ slot: UInt32) -> Bool { slot < sleepers.count && sleepers[Int(slot)].isThawed }

    // MARK: Who is there

    /// Descriptors in use.
    var pageCount: Int { words.pageCount }

    /// - Returns: the descriptor of its wake word, and where in there it is; nil if it wants none.
    func add(
        _ slot: UInt32, user: UInt32, wantsWord: Bool
    ) throws(SystemError) -> (descriptor: CInt, index: UInt16)? {
        while sleepers.count <= Int(slot) { sleepers.append(Sleeper()) }
        sleepers[Int(slot)] = Sleeper()
        guard wantsWord else { return nil }
        let word = try words.take(user: user)
        sleepers[Int(slot)].word = word
        return (words.descriptor(for: word), word.index)
    }

    func remove(_ slot: UInt32, user: UInt32) {
        guard slot < sleepers.count else { return }
        if let word = sleepers[Int(slot)].word { words.giveBack(word, user: user) }
        sleepers[Int(slot)] = Sleeper()
    }
}
