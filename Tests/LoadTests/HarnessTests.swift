import CFloors
import Foundation
import LinuxSystem
import Synchronization
import Testing

@testable import LoadTester

@Suite("The parts of the load tester")
struct HarnessTests {
    private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
        "load-parts-\(UUID().uuidString)"
    ).path

    private func inDirectory(_ body: () throws -> Void) throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try body()
    }

    private func text(_ name: String) -> String {
        (try? String(contentsOfFile: "\(directory)/\(name)", encoding: .utf8)) ?? ""
    }

    @Test("Wrong bytes of a client stay counted after its end, and its next generation begins at zero")
    func wrongBytes() throws {
        try inDirectory {
            let sharedMemory = try ChaosSharedMemory(clients: 2, socketsPerClient: 2)
            let callers = try ChaosCallers(.unix, sockets: 4, directory: directory)
            sharedMemory[socket: 1, .wrong] = 3
            sharedMemory[socket: 1, .received] = 70
            sharedMemory[socket: 2, .wrong] = 4
            callers.disconnect(0, sharedMemory)
            // Its process may still write.
            #expect(sharedMemory[socket: 1, .received] == 70)
            sharedMemory[socket: 1, .wrong] += 1
            callers.resetCounters(0, sharedMemory)
            #expect(sharedMemory[socket: 1, .wrong] == 0 && sharedMemory[socket: 1, .received] == 0)
            #expect(callers.wrongBytes(sharedMemory) == 8)
        }
    }

    @Test("A chaos client is overdue when its keep-alive never came")
    func overdue() throws {
        let sharedMemory = try ChaosSharedMemory(clients: 1, socketsPerClient: 1)
        #expect(!sharedMemory.isKeepAliveOverdue(0, at: 1_000_000_000))
        (sharedMemory[0, .timeout], sharedMemory[0, .ranAt]) = (3_000_000_000, 1_000_000_000)
        #expect(!sharedMemory.isKeepAliveOverdue(0, at: 4_000_000_000))
        #expect(sharedMemory.isKeepAliveOverdue(0, at: 4_100_000_000))
    }

    @Test("Descriptors arrive in the order given, whatever their numbers are")
    func inheritance() throws {
        try inDirectory {
            for name in ["one", "two"] {
                try name.write(toFile: "\(directory)/\(name)", atomically: true, encoding: .utf8)
            }
            let one = try OwnedDescriptor(opening: "\(directory)/one", O_RDONLY)
            let opened = try OwnedDescriptor(opening: "\(directory)/two", O_RDONLY)
            let high = fcntl(opened.rawValue, F_DUPFD_CLOEXEC, 64)
            try #require(high >= 64)
            let two = OwnedDescriptor(adopting: high)
            let before = Array(repeating: one.rawValue, count: Int(two.rawValue) - 63)
            let child = try ChildProcess(
                "sh", ["/bin/sh", "-c", "cat /proc/self/fd/\(3 + before.count)"],
                descriptors: before + [two.rawValue], log: "\(directory)/log")
            try wait(for: "the child", atMost: .seconds(20)) { !child.isRunning }
            #expect(text("log") == "two")
        }
    }

    @Test("A program gets no descriptor that the harness has from its shell")
    func noOthers() throws {
        try inDirectory {
            let opened = try OwnedDescriptor(opening: "/dev/null", O_RDONLY)
            // A duplicate is inherited.
            let inherited = OwnedDescriptor(adopting: dup(opened.rawValue))
            try #require(inherited.rawValue > 2)
            let child = try ChildProcess("ls", ["/bin/ls", "/proc/self/fd"], log: "\(directory)/log")
            try wait(for: "the child", atMost: .seconds(20)) { !child.isRunning }
            // The last is the directory that it reads.
            #expect(text("log") == "0\n1\n2\n3\n")
        }
    }

    @Test("All children are asked to end before one is waited for")
    func ending() throws {
        try inDirectory {
            func start(_ name: String, _ reaction: String) throws -> ChildProcess {
                try ChildProcess(
                    name,
                    ["/bin/sh", "-c", "trap '\(reaction)' TERM; echo ready; while :; do sleep 0.02; done"],
                    log: "\(directory)/\(name).log")
            }
            let flag = "\(directory)/flag"
            let children = [
                try start("server", "echo > \(flag); exit"),
                try start("client", "while [ ! -e \(flag) ]; do sleep 0.02; done; echo done; exit"),
            ]
            try wait(for: "both", atMost: .seconds(20)) {
                children.allSatisfy { text("\($0.name).log").contains("ready") }
            }
            ChildProcess.end(children)
            #expect(text("client.log").contains("done"))
            #expect(children.allSatisfy { !$0.isRunning })
        }
    }

    @Test("A process that has to be killed takes its children along, even a stopped one")
    func endingChildren() throws {
        try inDirectory {
            let child = try ChildProcess(
                "sh",
                [
                    "/bin/sh", "-c",
                    "trap '' TERM HUP; sleep 1000 & kill -STOP $!; echo $! > \(directory)/pid; wait",
                ], log: "\(directory)/log")
            try wait(for: "the grandchild", atMost: .seconds(20)) { text("pid").hasSuffix("\n") }
            let pid = try #require(pid_t(text("pid").dropLast()))
            defer { kill(pid, SIGKILL) }
            child.end()
            #expect(ProcFS.state(pid).map { $0 == "Z" } ?? true)
        }
    }

    @Test("No connection is inherited by programs that are started")
    func closeOnExec() throws {
        for transport in Transport.allCases {
            let (first, second) = try transport.pair()
            for socket in [first, second] {
                #expect(fcntl(socket, F_GETFD) & FD_CLOEXEC != 0, "\(transport)")
                close(socket)
            }
        }
    }

    @Test("A silent connection delays no other", .timeLimit(.minutes(40)))
    func silence() throws {
        let callers = try Callers(.tcp, slots: 1, directory: "/nowhere")
        let silent = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        defer { close(silent) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(try #require(UInt16(callers.callPlan[0]))).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let connected = withUnsafeBytes(of: &address) {
            connect(silent, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), 16)
        }
        #expect(connected == 0)
        let real = try Transport.tcp.connect(to: callers.callPlan[0], as: 0)
        defer { close(real) }
        try wait(for: "the other", atMost: .seconds(20)) {
            try callers.acceptConnections()
            return callers.connected == 1
        }
    }

    @Test("A run that would run out of descriptors is refused before it begins")
    func descriptors() throws {
        // The third server has 512 connections, whatever the others have.
        #expect(throws: LoadError.self) {
            try DescriptorNeeds.chatting(180, active: 5).peerProcesses(limit: 512)
        }
        #expect(try DescriptorNeeds.chatting(180, active: 5).peerProcesses(limit: 576) == 0)
        #expect(try DescriptorNeeds.parked(800, clients: 10).peerProcesses(limit: 1_024) == 0)
        #expect(try DescriptorNeeds.pinged(800, clients: 5).peerProcesses(limit: 1_024) == 0)
        #expect(try DescriptorNeeds.chatting(900, active: 50).peerProcesses(limit: 1_024) == 0)
        #expect(try DescriptorNeeds().peerProcesses(limit: 10) == 0)
        for needs in [
            DescriptorNeeds.parked(3_000, clients: 20), .called(400, .tcp, .signal),
            .called(400, .udp, .cgroup), .pinged(1_000, clients: 5), .chatting(1_000, active: 5),
            .chatting(900, active: 161),
        ] {
            #expect(throws: LoadError.self) { try needs.peerProcesses(limit: 1_024) }
        }
    }

    @Test("Leftovers of a killed run are removed, those of a running one are not")
    func leftovers() throws {
        try inDirectory {
            func count() throws -> Int {
                try FileManager.default.contentsOfDirectory(atPath: directory).count
            }
            func makeAndRemove() throws {
                let own = try Leftovers.makeDirectory(in: directory)
                Leftovers.removeDirectories(in: directory)
                #expect(access(own.path, F_OK) == 0)
                try "x".write(toFile: "\(own.path)/file", atomically: true, encoding: .utf8)
            }
            try makeAndRemove()
            #expect(try count() == 1)
            try FileManager.default.createDirectory(
                atPath: "\(directory)/nightbell-load-foreign", withIntermediateDirectories: true)
            // The other process belongs to none of these tests. (A process that another test forks at this
            // moment holds the lock until it executes its program.)
            try wait(for: "the first to be removed", atMost: .seconds(20)) {
                Leftovers.removeDirectories(in: directory)
                return try FileManager.default.contentsOfDirectory(atPath: directory) == [
                    "nightbell-load-foreign"
                ]
            }
        }
    }

    @Test("A directory without a lock is removed once it is old")
    func leftoversWithoutLock() throws {
        try inDirectory {
            let old = Date(timeIntervalSinceNow: -Double(2 * Leftovers.oldAge))
            for name in ["nightbell-load-aaaaaa", "nightbell-load-bbbbbb"] {
                try FileManager.default.createDirectory(
                    atPath: "\(directory)/\(name)/supervisor/state", withIntermediateDirectories: true)
            }
            try FileManager.default.setAttributes(
                [.modificationDate: old], ofItemAtPath: "\(directory)/nightbell-load-aaaaaa")
            Leftovers.removeDirectories(in: directory)
            // The other may be one that is just being made.
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: directory) == ["nightbell-load-bbbbbb"])
        }
    }

    @Test(
        "Cgroups of a killed run are removed by the next run of any kind",
        .enabled(if: geteuid() == 0))
    func leftoverCgroups() throws {
        let own = try #require(CgroupTree.required().directory(of: getpid()))
        // No process was started in the first moment of the machine.
        let left = "\(own)/nightbell-load-\(getpid())-0"
        #expect(mkdir(left, 0o755) == 0)
        // A run of another test may remove the first before there is the second.
        #expect(mkdir("\(left)/floor-1", 0o755) == 0 || errno == ENOENT)
        _ = try RunDirectory.forTests()
        #expect(access(left, F_OK) != 0)
    }

    @Test("A sleeper that has died is neither called nor waited for")
    func death() throws {
        try inDirectory {
            let population = Standing(try SharedMemory(slots: 2), try Callers(.tcp, slots: 2, directory: "/"))
            let child = try ChildProcess("true", ["/bin/true"], log: "\(directory)/log")
            try wait(for: "the child", atMost: .seconds(20)) { !child.isRunning }
            population.sharedMemory[0].pointer.pointee.pid = getpid()
            population.sharedMemory[1].pointer.pointee.pid = child.id
            try population.requireAlive(0)
            #expect(throws: LoadError.self) { try population.requireAllAlive() }
            let start = monotonicNow()
            #expect(throws: LoadError.self) { try population.waitUntilAsleep(1) }
            #expect(monotonicNow() - start < 10_000_000_000)
            population.sharedMemory[0].stage = .failed
            #expect(throws: LoadError.self) { try population.requireAlive(0) }
        }
    }

    /// None of its sleepers ever sleeps.
    private final class Standing: Population {
        let range = 0..<2
        let sharedMemory: SharedMemory
        let callers: Callers

        init(_ sharedMemory: SharedMemory, _ callers: Callers) {
            (self.sharedMemory, self.callers) = (sharedMemory, callers)
        }

        func isAsleep(_ index: Int) -> Bool { false }
        func name(of index: Int) -> String { "\(index)" }
    }
}

@Suite("The floors")
struct FloorTests {
    private func pairs(_ count: Int) throws -> [(CInt, CInt)] {
        try (0..<count).map { _ in try Transport.unix.pair() }
    }

    @Test("The floor sends all pings together that its windows allow")
    func bursts() throws {
        let pairs = try pairs(1_100)
        let pings = try SharedPings()
        let task = Thread {
            cfloors_pinger(pairs.map(\.0), pairs.count, 3_600_000_000_000, 720_000_000_000, pings.pointer)
        }
        pings.give(cfloors_pings_run)
        task.start()
        // Evenly spread they would take an hour.
        var bytes = [UInt8](repeating: 0, count: 64)
        var lengths: [Int] = []
        for (_, end) in pairs {
            var waiting = pollfd(fd: end, events: Int16(POLLIN), revents: 0)
            try #require(poll(&waiting, 1, 20_000) == 1)
            lengths.append(read(end, &bytes, bytes.count))
        }
        #expect(lengths.allSatisfy { $0 == 5 })
        // A ping of the other side is answered, and no window has begun anew.
        #expect(write(pairs[7].1, "ping\n", 5) == 5)
        var waiting = pollfd(fd: pairs[7].1, events: Int16(POLLIN), revents: 0)
        try #require(poll(&waiting, 1, 20_000) == 1)
        #expect(read(pairs[7].1, &bytes, bytes.count) == 5 && bytes.starts(with: Array("pong\n".utf8)))
        pings.give(cfloors_pings_end)
        try wait(for: "the floor to end", atMost: .seconds(20)) { task.isFinished }
        for (_, end) in pairs { #expect(recv(end, &bytes, bytes.count, CInt(MSG_DONTWAIT)) < 0) }
        for (one, other) in pairs {
            close(one)
            close(other)
        }
    }

    @Test("The floor's adopter closes everything and adopts it again, in the same process")
    func adopting() throws {
        let pairs = try pairs(20)
        let descriptors = pairs.flatMap { [$0.0, $0.1] }
        defer { for descriptor in descriptors { close(descriptor) } }
        let sharedMemory = try SharedMemory(slots: 1)
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue)
        try #require(socketpair(AF_UNIX, type, 0, &ends) == 0)
        let (own, theirs) = (ends[0], ends[1])
        let time = UInt(bitPattern: sharedMemory.notedTime)
        let task = Thread { cfloors_adopter(theirs, 40, UnsafeMutablePointer(bitPattern: time)) }
        task.start()
        for _ in 1...3 {
            #expect(cfloors_hand_over(own, descriptors, 40, 10, "x", 1, nil) == 0)
            try wait(for: "adoption", atMost: .seconds(20)) { sharedMemory.notedTime.pointee != 0 }
            #expect(send(own, "x", 1, CInt(MSG_NOSIGNAL)) == 1)
            try wait(for: "the end of it", atMost: .seconds(20)) { sharedMemory.notedTime.pointee == 0 }
        }
        close(own)
        try wait(for: "the adopter", atMost: .seconds(20)) { task.isFinished }
        #expect(task.result.withLock { $0 } == 0)
        close(theirs)
    }

    /// The work of a floor's process, in a thread of this process.
    private final class Thread: Sendable {
        let result = Mutex<CInt?>(nil)
        private let body: @Sendable () -> CInt

        init(_ body: @escaping @Sendable () -> CInt) { self.body = body }

        var isFinished: Bool { result.withLock { $0 != nil } }

        func start() {
            Foundation.Thread.detachNewThread { [self] in
                let code = body()
                result.withLock { $0 = code }
            }
        }
    }
}

@Suite("Keep-alives in real time")
struct RealKeepAliveTests {
    private static let second: Int64 = 1_000_000_000

    private func slot(timeout: Int64, began: Int64 = 0, ran: Int64, runs: UInt64, late: UInt64 = 0)
        -> cfloors_slot
    {
        var slot = cfloors_slot()
        (slot.timeout, slot.began_at, slot.ran_at) = (timeout * Self.second, began, ran * Self.second)
        (slot.runs, slot.late_runs) = (runs, late)
        (slot.longest_gap, slot.shortest_gap) = runs > 0 ? (slot.timeout, slot.timeout / 2) : (0, 0)
        return slot
    }

    private func outcome(_ slots: [cfloors_slot], _ times: [Int64] = []) -> VirtualKeepAlive.Outcome {
        RealKeepAlive.outcome(
            of: slots, runTimes: times.map { $0 * Self.second }, from: 0, to: 10 * Self.second)
    }

    @Test("A client is late when its handler never ran, and so is each late run")
    func late() {
        #expect(outcome([slot(timeout: 4, ran: 0, runs: 0)]).late == 1)
        #expect(outcome([slot(timeout: 4, ran: 8, runs: 2)]).late == 0)
        #expect(outcome([slot(timeout: 4, ran: 3, runs: 1, late: 2)]).late == 3)
        // Its first is not due yet.
        #expect(outcome([slot(timeout: 12, ran: 0, runs: 0)]).late == 0)
    }

    @Test("Timers that fire together are one instant, as handlers that run together are")
    func baseline() {
        let two = [slot(timeout: 4, ran: 8, runs: 2), slot(timeout: 4, began: 1_000, ran: 8, runs: 2)]
        let together = outcome(two, [4, 4, 8, 8])
        #expect((together.runs, together.instants.count) == (4, 2))
        #expect((together.uncoalescedRuns, together.uncoalescedInstants) == (4, 2))
        let apart = outcome([two[0], slot(timeout: 4, began: Self.second, ran: 8, runs: 2)])
        #expect((apart.uncoalescedRuns, apart.uncoalescedInstants) == (4, 4))
    }

    @Test("Each run that comes too late is counted")
    func noting() throws {
        let sharedMemory = try SharedMemory(slots: 1)
        sharedMemory[0].pointer.pointee.timeout = 1
        sharedMemory[0].pointer.pointee.ran_at = 1
        let note = sharedMemory.runRecorder(sharedMemory[0])
        note()
        note()
        #expect(sharedMemory[0].pointer.pointee.late_runs == 2)
        sharedMemory[0].pointer.pointee.timeout = 3_600 * Self.second
        note()
        #expect(sharedMemory[0].pointer.pointee.late_runs == 2)
        #expect(sharedMemory[0].runs == 3)
    }
}
