import CFloors
import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import Presentation
import SwiftProtobuf

/// Hands descriptors over as fast as the other side takes them, without waiting for answers.
struct AdoptRun {
    struct Settings {
        var transport: Transport
        var sockets: Int
        /// Descriptors in a packet; one is typical of a client that opens a connection now and then.
        var batch: Int
        var rounds: Int
    }

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> AdoptResults {
        let supervisor = try PrivateSupervisor(runDirectory, .init(suspension: .signal))
        runDirectory.progress.say("making \(settings.sockets) sockets")
        var descriptors: [CInt] = []
        defer { for descriptor in descriptors { close(descriptor) } }
        try makeSockets(&descriptors)
        // The same process serves all rounds, to be as warm as the supervisor; the first round does not
        // count.
        let floor = try FloorHolder(runDirectory, expected: settings.sockets)
        defer { floor.end() }
        var results = AdoptResults(settings: settings)
        for round in 0...settings.rounds {
            for isOurs in round % 2 == 0 ? [true, false] : [false, true] {
                let seconds =
                    try isOurs ? handOver(descriptors, to: supervisor) : handOver(descriptors, to: floor)
                guard round > 0 else { continue }
                let rate = Double(settings.sockets) / seconds
                if isOurs { results.ours.append(rate) } else { results.floor.append(rate) }
            }
            guard round > 0, let ours = results.ours.last, let floor = results.floor.last else { continue }
            runDirectory.progress.say(
                "round \(round): \(figure(ours, digits: 0)) sockets/s, floor \(figure(floor, digits: 0))")
        }
        results.machine.finish()
        return results
    }

    /// Makes the sockets, hands them over, and closes them.
    func handOverOnce(to supervisor: PrivateSupervisor) throws {
        var descriptors: [CInt] = []
        defer { for descriptor in descriptors { close(descriptor) } }
        try makeSockets(&descriptors)
        _ = try handOver(descriptors, to: supervisor)
    }

    private func makeSockets(_ descriptors: inout [CInt]) throws(LoadError) {
        while descriptors.count < settings.sockets {
            let (first, second) = try settings.transport.pair()
            descriptors += [first, second]
        }
    }

    /// From before the first packet to the last answer, in seconds.
    private func handOver(_ descriptors: [CInt], to supervisor: PrivateSupervisor) throws -> Double {
        let others = try supervisor.status().sockets
        let socket = try SeqPacketSocket.connect(path: supervisor.socketPath)
        var answers = 0
        let hello = WireClientMessage.with {
            $0.request = 1
            $0.hello = .with {
                $0.version = 1
                $0.identifier = "org.nightbell.load.adopt"
                $0.modes = [.voip]
            }
        }
        guard try socket.send(hello.serializedBytes()) else { throw LoadError.timedOut("Hello") }
        try check("Hello", cfloors_await_answers(socket.rawValue, &answers, 1))
        let message = WireClientMessage.with {
            $0.request = 2
            $0.handOver.sockets = Array(repeating: .with { $0.tag = .voip }, count: settings.batch)
        }
        let bytes: [UInt8] = try message.serializedBytes()
        let packets = descriptors.count / settings.batch
        answers = 0
        let start = monotonicNow()
        try check(
            "hand over",
            cfloors_hand_over(
                socket.rawValue, descriptors, descriptors.count, settings.batch, bytes, bytes.count, &answers)
        )
        try check("hand over", cfloors_await_answers(socket.rawValue, &answers, packets))
        let end = monotonicNow()
        guard try supervisor.status().sockets == others + descriptors.count else {
            throw LoadError.supervisor("the supervisor did not adopt all sockets")
        }
        socket.takeDescriptor().close()
        try wait(for: "all sockets to be released", atMost: .seconds(10), firstPause: 5_000_000) {
            try supervisor.status().sockets == others
        }
        return Double(end - start) / 1e9
    }

    private func handOver(_ descriptors: [CInt], to floor: FloorHolder) throws -> Double {
        let start = monotonicNow()
        try check(
            "hand over to the floor",
            cfloors_hand_over(
                floor.socket.rawValue, descriptors, descriptors.count, settings.batch, "x", 1, nil))
        let end = try floor.waitUntilDone()
        try floor.disconnect()
        return Double(end - start) / 1e9
    }

    private func check(_ what: String, _ code: CInt) throws(LoadError) {
        guard code == 0 else { throw LoadError(what, code: code) }
    }
}

/// The floor's process that adopts and parks.
final class FloorHolder {
    let socket: OwnedDescriptor
    let process: ChildProcess
    private let sharedMemory: SharedMemory
    private let runDirectory: RunDirectory

    init(_ runDirectory: RunDirectory, expected: Int) throws {
        self.runDirectory = runDirectory
        sharedMemory = try SharedMemory(slots: 1)
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw LoadError(failed: "socketpair") }
        socket = OwnedDescriptor(adopting: ends[0])
        let theirs = OwnedDescriptor(adopting: ends[1])
        process = try runDirectory.start(
            .floorAdopter, ["\(expected)"], descriptors: [sharedMemory.descriptor.rawValue, theirs.rawValue])
        let sharedMemory = sharedMemory
        try wait(for: "the floor's adopter", atMost: .seconds(10), firstPause: 1_000_000) {
            try runDirectory.requireAllRunning()
            return sharedMemory[0].stage == .running
        }
    }

    /// When the last descriptor was watched.
    func waitUntilDone() throws -> Int64 {
        let time = sharedMemory.notedTime
        try wait(for: "the floor to adopt everything", atMost: .seconds(30), firstPause: 1_000_000) {
            try runDirectory.requireAllRunning()
            return time.pointee != 0
        }
        return time.pointee
    }

    /// Has the floor close everything that it has adopted.
    func disconnect() throws {
        guard send(socket.rawValue, "x", 1, CInt(MSG_NOSIGNAL)) == 1 else { throw LoadError(failed: "send") }
        let time = sharedMemory.notedTime
        try wait(for: "the floor to let go", atMost: .seconds(30), firstPause: 1_000_000) {
            try runDirectory.requireAllRunning()
            return time.pointee == 0
        }
    }

    func end() { runDirectory.end(process) }
}

struct AdoptResults {
    let settings: AdoptRun.Settings
    /// Sockets a second, of each round.
    var ours: [Double] = []
    var floor: [Double] = []
    var machine = Machine()

    init(settings: AdoptRun.Settings) {
        self.settings = settings
    }

    var ratio: Double { medianRatio(ours, over: floor) }
}

extension AdoptResults: Reportable {
    var command: String { "adopt" }

    var json: JSON {
        [
            "command": "adopt",
            "transport": .string(settings.transport.rawValue),
            "sockets": .integer(Int64(settings.sockets)),
            "batch": .integer(Int64(settings.batch)),
            "rounds": .integer(Int64(settings.rounds)),
            "sockets_per_s": .rounded(median(ours), digits: 0),
            "floor": ["sockets_per_s": .rounded(median(floor), digits: 0)],
            "ratio": ["sockets_per_s": .rounded(ratio)],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        [
            ReportTable(
                title: "Adoption, \(settings.batch) in a packet",
                columns: ["", "Nightbell", "floor", "ratio"],
                rows: [
                    [
                        "sockets/s", figure(median(ours), digits: 0), figure(median(floor), digits: 0),
                        figure(ratio, digits: 2),
                    ]
                ],
                note: "\(settings.sockets) sockets, medians of \(settings.rounds) interleaved rounds")
        ]
    }

    /// A packet with one socket is answered on its own.
    var verdicts: [Verdict] {
        [Verdict("sockets/s over floor", ratio, atLeast: settings.batch == 1 ? 0.35 : 0.6)]
    }

    var charts: [Chart] {
        func series(_ name: String, _ rates: [Double]) -> Chart.Series {
            .init(
                name: name, points: rates.enumerated().map { .init(x: Double($0.offset + 1), y: $0.element) })
        }
        return [
            Chart(
                title: "Sockets a second", horizontal: "round", vertical: "sockets/s", style: .lines,
                series: [series("Nightbell", ours), series("floor", floor)])
        ]
    }
}
