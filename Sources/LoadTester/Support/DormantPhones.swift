import Glibc
import Nightbell
import NightbellWire
import SwiftProtobuf

/// Clients without a process, each with a parked connection that calls it.
struct DormantPhones {
    let runDirectory: RunDirectory
    let supervisor: PrivateSupervisor
    let callers: Callers
    /// Each is launched with an environment of its own.
    var haveOwnEnvironments = false

    /// The most that have a process at a time when all are called: the supervisor launches 32 at a time, and
    /// phones that have answered are ended soon.
    static let mostAtOnce = 256

    static func identifier(_ index: Int) -> String { "org.nightbell.load.phone.\(index)" }

    /// Starts phones, which register and ask to be ended instead of being suspended, and waits until the
    /// supervisor has ended them.
    func start(_ range: Range<Int>) throws {
        for first in stride(from: range.lowerBound, to: range.upperBound, by: 16) {
            let part = first..<min(first + 16, range.upperBound)
            let phones = try part.map(startOne)
            try waitUntilRegistered(part.upperBound)
            for phone in phones { try Self.waitUntilEnded(phone, runDirectory) }
        }
        try waitUntilDormant(range.upperBound)
    }

    private func startOne(_ index: Int) throws -> ChildProcess {
        let command = [PhoneProgram.path(runDirectory), callers.callPlan[index], "\(index)"]
        let hello = WireClientMessage.with {
            $0.request = 1
            $0.hello = .with {
                $0.version = 1
                $0.identifier = Self.identifier(index)
                $0.modes = [.voip]
                $0.launch.arguments = command
                // As `nightbell run` records it.
                $0.launch.environment = [
                    "HOME": "/", "LANG": "C.UTF-8", "LOGNAME": "alice",
                    "PATH": "/usr/local/bin:/usr/bin:/bin",
                    "SHELL": "/bin/bash", "USER": "alice",
                ]
                if haveOwnEnvironments {
                    $0.launch.environment["HOME"] = "/home/alice/phone\(index)"
                    $0.launch.environment["PHONE_NUMBER"] = "\(index)"
                }
                $0.launch.directory = "/"
            }
        }
        let digits = "0123456789abcdef".map { String($0) }
        let bytes: [UInt8] = try hello.serializedBytes()
        let text = bytes.map { digits[Int($0 >> 4)] + digits[Int($0 & 15)] }.joined()
        return try ChildProcess(
            "nightbell-phone", command, log: "\(runDirectory.path)/nightbell-phone.log",
            environment: [
                "PHONE_HELLO": text, "PHONE_PARENT": "\(getpid())",
                "NIGHTBELL_SOCKET": supervisor.socketPath,
            ])
    }

    func waitUntilRegistered(_ count: Int) throws {
        try wait(for: "phones to register", atMost: .seconds(30)) {
            try runDirectory.requireAllRunning()
            try callers.acceptConnections()
            return callers.connected == count
        }
    }

    /// Waits until the supervisor has ended a phone, as the phone asked for.
    static func waitUntilEnded(
        _ phone: ChildProcess, _ runDirectory: RunDirectory, atMost limit: Duration = .seconds(30)
    ) throws {
        try wait(for: "phones to be ended", atMost: limit) {
            try runDirectory.requireAllRunning()
            return !phone.isRunning
        }
        guard phone.exitStatus == 128 + SIGKILL else { throw runDirectory.end(of: phone) }
    }

    func waitUntilDormant(_ count: Int) throws {
        try wait(for: "\(count) phones to be dormant", atMost: .seconds(60), firstPause: 5_000_000) {
            try runDirectory.requireAllRunning()
            return try supervisor.status().clientsByState["dormant", default: 0] >= count
        }
    }
}
