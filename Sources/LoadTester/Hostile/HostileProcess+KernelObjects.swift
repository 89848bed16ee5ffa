import CFloors
import Glibc
import LinuxSystem
import NightbellWire

/// Attacks with objects of which the kernel takes long to tell: each question is cheap to cause and costly to answer.
extension HostileProcess {
    // MARK: File locks

    /// Clients with many file locks, one after the other: the locks of each are counted when it sleeps for the
    /// first time.
    func sleepWithFileLocks() throws {
        let file = cfloors_memory("locks")
        guard file >= 0 else { throw LoadError(failed: "memfd_create") }
        // All processes that inherit the file hold its locks, by each of its descriptors.
        let code = cfloors_take_locks(file, Self.locks)
        guard code == 0 else { throw LoadError("fcntl", code: code) }
        for _ in 1..<Self.lockedDescriptors where dup(file) < 0 { throw LoadError(failed: "dup") }
        var next = 0
        while !isOver {
            next += 1
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            if child == 0 {
                var sleeper = try HostileSleeper(socketPath)
                try sleeper.register(greeting(2 * (next % 64) + number))
                try sleeper.sleep { isOver }
                _exit(0)
            }
            usleep(200_000)
            kill(child, SIGKILL)
            var status: CInt = 0
            while waitpid(child, &status, 0) == -1, errno == EINTR {}
            guard status == SIGKILL || isOver else {
                throw LoadError.childEnded("a sleeper with locks", status: status)
            }
        }
    }

    private static let locks: CInt = 10_000
    /// The supervisor looks at 64 descriptors of a process.
    private static let lockedDescriptors = 60

    // MARK: Descendants

    /// Hellos for a program with more descendants than are accepted.
    func speakForManyDescendants() throws {
        let program = cfloors_fork()
        guard program >= 0 else { throw LoadError(failed: "fork") }
        guard program != 0 else {
            // Each has to be asked for its children.
            for _ in 0..<Self.descendants / Self.generations where !isOver { growChain(Self.generations) }
            while !isOver { pause() }
            _exit(0)
        }
        guard let startTime = ProcFS.startTime(program) else {
            throw LoadError(failed: "reading a start time")
        }
        var hello = greeting(number)
        hello.modes = []
        hello.program.processID = UInt32(program)
        hello.program.startTime = startTime
        // The supervisor would accept it before it has enough of them.
        while !isOver, ProcFS.descendants(of: program).count < 300 { usleep(10_000) }
        try flood(connections: 8, packets: [try Packet(.hello(hello))])
    }

    /// A child, its child and so on.
    private func growChain(_ generations: Int) {
        guard generations > 0, cfloors_fork() == 0 else { return }
        growChain(generations - 1)
        while !isOver { pause() }
        _exit(0)
    }

    private static let descendants = 1_500
    private static let generations = 15

    // MARK: Epoll sets

    /// Epoll sets with many members, handed over by four clients as what can wake them.
    func handOverEpollSets() throws {
        let set = try PollSet()
        try fill(set)
        let packets = try [1, 100].map { count in
            var handOver = WireHandOver()
            handOver.sockets = (0..<count).map { _ in
                var socket = WireHandOver.Socket()
                socket.tag = .device
                return socket
            }
            return try Packet(.handOver(handOver), descriptors: Array(repeating: set.rawValue, count: count))
        }
        try flood(clients: 4, packets: packets)
    }

    /// A member is a file with the number that it had when it was added, also when the number is another file's.
    private func fill(_ set: borrowing PollSet) throws {
        for _ in 0..<Self.members / 2 / Self.numbers.count where !isOver {
            let (near, far) = try Self.connectedPair()
            for number in Self.numbers {
                for end in [near, far] {
                    guard dup2(end, number) == number else { throw LoadError(failed: "dup2") }
                    try set.add(number)
                }
            }
        }
        for number in Self.numbers { close(number) }
    }

    /// A user may have some million in all sets together.
    private static let members = 300_000
    /// No others have them.
    private static let numbers: Range<CInt> = 1_024..<2_024
}
