import CTorture
import Glibc
import LinuxSystem

/// A program that is tortured: its lines, whether it is frozen, and what is done to it next.
final class TorturedProgram {
    /// The process that signals are sent to: of `nightbell run`, or the program itself.
    let parent: ChildProcess
    let number: Int
    /// It runs without Nightbell.
    let isFree: Bool
    var lines: [TortureLine] = []

    enum Plan {
        /// To be called this long after it has frozen, at the latest at this time.
        case asleep(delay: Int64, atLatest: Int64)
        /// To be called as soon as the freeze begins, which is watched from this time on.
        case freezing(from: Int64, delay: Int64, atLatest: Int64)
        case at(Int64)
    }
    var plan: Plan = .at(0)
    private(set) var isFrozen = false
    private(set) var frozenSince: Int64 = 0
    private(set) var sleeps = 0
    /// When it was called last, or something came from it.
    var lastActivity: Int64 = 0
    /// From the last activity until it was frozen, the last time that this was seen.
    private(set) var timeToFreeze: Int64 = 125_000_000
    private var events: OwnedDescriptor?
    private var freezer: OwnedDescriptor?

    init(_ parent: ChildProcess, number: Int, isFree: Bool) {
        self.parent = parent
        self.number = number
        self.isFree = isFree
    }

    /// A descriptor for poll(2), which has `POLLPRI` when it may have been frozen or thawed; -1: none.
    var eventsDescriptor: CInt { events?.rawValue ?? -1 }

    func openCgroup(_ tree: CgroupTree) {
        guard !isFree, let process = lines.last?.process, let directory = tree.directory(of: process) else {
            return
        }
        events = try? OwnedDescriptor(opening: directory + "/cgroup.events", O_RDONLY)
        freezer = try? OwnedDescriptor(opening: directory + "/cgroup.freeze", O_RDONLY)
    }

    private static func read(_ descriptor: CInt) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 128)
        let length = pread(descriptor, &bytes, bytes.count, 0)
        return length > 0 ? Array(bytes.prefix(length)) : nil
    }

    /// Looks whether it is frozen.
    func look(_ tree: CgroupTree, at now: Int64) {
        guard !isFree else { return }
        guard let bytes = Self.read(eventsDescriptor) else {
            // It has been moved, perhaps to the root, which is never frozen.
            isFrozen = false
            return openCgroup(tree)
        }
        let frozen = bytes.split(separator: UInt8(ascii: "\n")).contains { $0.elementsEqual("frozen 1".utf8) }
        if frozen {
            sleeps += 1
            if !isFrozen, lastActivity > 0, now > lastActivity { timeToFreeze = now - lastActivity }
            frozenSince = now
        }
        isFrozen = frozen
    }

    /// The supervisor has begun to freeze it, or has done so.
    var isToFreeze: Bool { Self.read(freezer?.rawValue ?? -1)?.first == UInt8(ascii: "1") }

    var hasCalls: Bool { lines.contains { $0.call != nil } }
}
