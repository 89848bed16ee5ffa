import CFloors
import Glibc
import LinuxSystem
import Nightbell

/// Sleeping clients own many sockets, and the supervisor sends and answers pings for them; then the floor
/// does the same with as many sockets and the same far end. One runs after the other, because the far end is
/// as busy as either.
struct OffloadRun {
    struct Settings {
        var suspension: SuspensionMethod
        var sockets: Int
        var clients: Int
        var intervalSeconds: Int
        var intervals: Int

        var seconds: Int { intervalSeconds * intervals }
    }

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> OffloadResults {
        var results = OffloadResults(settings: settings)
        results.ours = try runOurs(&results)
        results.floor = try runFloor()
        results.machine.finish()
        return results
    }

    private func runOurs(_ results: inout OffloadResults) throws -> OffloadResults.Side {
        let supervisor = try PrivateSupervisor(runDirectory, .init(suspension: settings.suspension))
        let farEnd = try FarEnd(settings, runDirectory, "ours")
        let pipe = try Pipe()
        var arguments = farEnd.arguments
        arguments.supervisorSocket = supervisor.socketPath
        let sleepers = try runDirectory.start(
            .pinged, arguments.list, descriptors: [farEnd.pings.descriptor, pipe.reading.rawValue])
        runDirectory.progress.say("handing over \(settings.sockets) sockets")
        try wait(for: "all sockets to be handed over", atMost: .seconds(120), firstPause: 10_000_000) {
            try runDirectory.requireAllRunning()
            return try supervisor.status().sockets == settings.sockets
        }
        try supervisor.waitUntilAsleep(settings.clients)
        let wakes = try supervisor.status().counters["wakes"]
        let side = try farEnd.measure(settings) {
            try [supervisor.worker, supervisor.process.id].reduce(0) { try $0 + processorTime($1) }
        }
        let status = try supervisor.status()
        results.clientWakes = status.counters["wakes"] - wakes
        results.bytes = try ProcessFigures(supervisor.worker).writtenBytes
        runDirectory.end(sleepers)
        farEnd.end()
        supervisor.end()
        return side
    }

    private func runFloor() throws -> OffloadResults.Side {
        let farEnd = try FarEnd(settings, runDirectory, "floor")
        runDirectory.progress.say("the floor connects as many")
        let floor = try runDirectory.start(
            .floorPinger, farEnd.arguments.list, descriptors: [farEnd.pings.descriptor])
        try farEnd.waitUntilConnected()
        let side = try farEnd.measure(settings) { try processorTime(floor.id) }
        runDirectory.end(floor)
        farEnd.end()
        return side
    }
}

/// The peers of all sockets, in a process of their own.
private final class FarEnd {
    let pings: SharedPings
    let arguments: PingArguments
    private let process: ChildProcess
    private let runDirectory: RunDirectory
    private let sockets: Int

    init(_ settings: OffloadRun.Settings, _ runDirectory: RunDirectory, _ name: String) throws {
        self.runDirectory = runDirectory
        sockets = settings.sockets
        pings = try SharedPings()
        let path = "\(runDirectory.path)/\(name).peer"
        arguments = PingArguments(
            path: path, sockets: settings.sockets, clients: settings.clients,
            intervalNanoseconds: Int64(settings.intervalSeconds) * 1_000_000_000)
        let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard listener >= 0 else { throw LoadError(failed: "socket") }
        defer { close(listener) }
        guard UnixPath(path).use({ bind(listener, $0, $1) }) == 0, listen(listener, 4_096) == 0 else {
            throw LoadError(failed: "listen on \(path)")
        }
        process = try runDirectory.start(
            .pingPeer, arguments.list, descriptors: [pings.descriptor, listener])
    }

    func end() {
        pings.give(cfloors_pings_end)
        runDirectory.end(process)
    }

    func waitUntilConnected() throws {
        try wait(for: "all connections", atMost: .seconds(60), firstPause: 10_000_000) {
            try runDirectory.requireAllRunning()
            return pings.pointer.pointee.connected == UInt64(sockets)
        }
    }

    private static let patience: Int64 = 1_000_000_000

    /// Lets both sides ping for this long.
    func measure(
        _ settings: OffloadRun.Settings, processorTime: () throws -> Int64
    ) throws -> OffloadResults.Side {
        try waitUntilConnected()
        let before = try processorTime()
        let heard = pings.heard(sockets)
        pings.give(cfloors_pings_run)
        for second in 1...settings.seconds {
            try pause(nanoseconds: 1_000_000_000)
            try runDirectory.requireAllRunning()
            if second % 10 == 0 { runDirectory.progress.show("\(second) of \(settings.seconds) s") }
        }
        var side = OffloadResults.Side()
        side.processorNanoseconds = try processorTime() - before
        let counts = zip(pings.heard(sockets), heard).map { Int($0 - $1) }
        // Late pings, and answers to the last ones, still arrive.
        pings.give(cfloors_pings_wait)
        try pause(nanoseconds: Self.patience)
        let seen = pings.pointer
        side.noteHeard(
            counts, later: zip(pings.heard(sockets), heard).map { Int($0 - $1) },
            intervals: settings.intervals)
        side.sent = Int(seen.pointee.sent)
        side.answered = Int(seen.pointee.answered)
        side.irregular = Int(seen.pointee.irregular)
        for latency in pings.latencies { side.latencies.record(nanoseconds: latency) }
        return side
    }
}
