import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Synchronization
import Testing

/// Support for the freezer's tests, which are skipped if the freezer cannot be used.
let canFreeze = MachineFacts.gather()["freezer"]?.status == .ok

private let counter = Atomic<Int>(0)

/// An instance of a test's own.
final class Fixture: Sendable {
    let directory: TemporaryDirectory
    let instance: InstanceNames

    init(cgroupParent: String? = nil) throws {
        directory = try TemporaryDirectory()
        let number = counter.add(1, ordering: .relaxed).newValue
        instance = InstanceNames(name: "test-\(getpid())-\(number)", cgroupParent: cgroupParent)
    }

    func suspender(_ method: SuspensionMethod) throws -> any Suspender {
        try makeSuspender(method, instance: instance, state: state())
    }

    func state() throws -> RuntimeState { try RuntimeState(directory: directory.path) }

    /// Cleans up after suspenders that are dropped, as in a crash.
    deinit {
        guard canFreeze, let suspender = try? suspender(.cgroup) else { return }
        _ = suspender.thawLeftovers()
        suspender.detachAll()
    }

    /// The path of our cgroup.
    func cgroupDirectory() throws -> String {
        let mount = try #require(CgroupMount.find())
        let parent = instance.cgroupParent.map { mount.directory(for: $0) } ?? mount.directory(of: getpid())
        return try #require(parent) + "/nightbell-" + instance.name
    }
}

/// A cgroup a test makes, as an administrator would.
final class ScratchCgroup {
    let name: String
    let directory: String

    init() throws {
        let mount = try #require(CgroupMount.find())
        let number = counter.add(1, ordering: .relaxed).newValue
        name = "/nightbell-scratch-\(getpid())-\(number)"
        directory = mount.directory(for: name)
        _ = try systemCall("mkdir") { mkdir(directory, 0o755) }
    }

    deinit { rmdir(directory) }

    func add(_ pid: pid_t) throws {
        try SmallFile.write("\(pid)", to: directory + "/cgroup.procs")
    }
}

func cgroup(of pid: pid_t) -> String? { CgroupMount.find()?.directory(of: pid) }

func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

extension Suspender {
    func attach(_ slot: UInt32, _ child: Child) throws {
        try attach(slot: slot, process: try child.handle())
    }

    /// Freezes and waits for the confirmation.
    func freezeFully(_ slot: UInt32, sourceLocation: SourceLocation = #_sourceLocation) throws {
        if try freeze(slot: slot) == .frozen { return }
        #expect(
            try eventually { try progress(slot: slot) == .frozen }, "it was not frozen in time",
            sourceLocation: sourceLocation)
    }
}

extension Child {
    /// Waits until it is ready to answer.
    static func awakeEcho() throws -> Child {
        let child = try echo()
        try #require(try child.answers())
        return child
    }

    /// Sends to it while it sleeps: no answer arrives within some time, until it is thawed.
    func isSilent() throws -> Bool {
        try send("!")
        return try hear(within: 30) == nil
    }
}
