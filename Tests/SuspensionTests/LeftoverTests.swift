import CLinux
import CTestSupport
import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

/// A supervisor that dies leaves its clients stopped; the next one thaws them.
@Suite(.enabled(if: canFreeze)) struct LeftoverTests {
    private let stage: Fixture

    init() throws { stage = try Fixture() }

    @Test(arguments: SuspenderTests.methods, SuspensionMethod.allCases)
    func theNextRunThaws(method: SuspensionMethod, next: SuspensionMethod) throws {
        let home = try ScratchCgroup()
        let frozen = try Child.awakeEcho()
        let running = try Child.awakeEcho()
        try home.add(frozen.pid)
        do {
            let suspender = try stage.suspender(method)
            try suspender.attach(0, running)
            try suspender.attach(5, frozen)
            try suspender.freezeFully(5)
            // Dropped without cleanup, as in a crash.
        }
        #expect(try frozen.isSilent())
        let suspender = try stage.suspender(next)
        #expect(
            suspender.thawLeftovers() == [LeftoverReport(pid: frozen.pid, method: method, outcome: .thawed)])
        #expect(try frozen.hear() == "!")
        #expect(try running.answers())
        #expect(cgroup(of: frozen.pid) == home.directory)
        #expect(suspender.thawLeftovers() == [])

        // The next supervisor works.
        try suspender.attach(5, frozen)
        try suspender.freezeFully(5)
        suspender.detachAll()
        #expect(try frozen.answers())
        frozen.end()
    }

    /// Their input has ended while they slept: they end as soon as they run, and are reported all the same.
    @Test func aProcessThatEndsAtTheThawIsReported() throws {
        let children = try (0..<20).map { _ in try Child.awakeEcho() }
        do {
            let suspender = try stage.suspender(.cgroup)
            for (slot, child) in children.enumerated() {
                try suspender.attach(UInt32(slot), child)
                try suspender.freezeFully(UInt32(slot))
            }
        }
        for child in children { shutdown(child.channel.rawValue, CInt(SHUT_RDWR)) }
        let named = try stage.suspender(.signal).thawLeftovers().map(\.pid)
        #expect(named.sorted() == children.map(\.pid).sorted())
    }

    /// Not even the empty cgroup of its instance, by whichever method the next run stops processes.
    @Test(arguments: [SuspensionMethod.signal, .none])
    func theNextRunRemovesCgroupsThatItDoesNotUse(next: SuspensionMethod) throws {
        let child = try Child.awakeEcho()
        do {
            let suspender = try stage.suspender(.cgroup)
            try suspender.attach(0, child)
            try suspender.freezeFully(0)
        }
        let place = try stage.cgroupDirectory()
        #expect(exists(place))
        #expect(try stage.suspender(next).thawLeftovers().map(\.pid) == [child.pid])
        #expect(!exists(place))
        #expect(try stage.state().cgroups == [])
        #expect(try child.answers())
    }

    @Test func nothingToDo() throws {
        for method in SuspensionMethod.allCases {
            let suspender = try stage.suspender(method)
            #expect(suspender.thawLeftovers() == [])
            suspender.detachAll()
        }
    }

    /// The pid belongs to another process now.
    @Test func aNumberUsedAgainIsNotTouched() throws {
        let child = try Child.awakeEcho()
        do {
            let suspender = try stage.suspender(.signal)
            try suspender.attach(0, child)
            try suspender.freezeFully(0)
        }
        let state = try stage.state()
        let startTime = try #require(ProcFS.startTime(child.pid))
        #expect(state.stopped == [child.pid: startTime])
        try state.noteStopped(RuntimeState.Process(pid: child.pid, startTime: startTime + 1))
        #expect(try stage.suspender(.signal).thawLeftovers() == [])
        #expect(ProcFS.state(child.pid) == "T")
    }

    /// A recorded path has our name, and is part of the hierarchy.
    @Test func recordedForeignCgroupsAreNotTouched() throws {
        let others = try ScratchCgroup()
        let place = others.directory + "/client-0"
        #expect(mkdir(place, 0o755) == 0)
        defer { rmdir(place) }
        let child = try Child.awakeEcho()
        try SmallFile.write("\(child.pid)", to: place + "/cgroup.procs")
        try SmallFile.write("1", to: place + "/cgroup.freeze")
        #expect(try eventually { try SmallFile.readText(place + "/cgroup.events").contains("frozen 1") })
        let state = try stage.state()
        try state.note(cgroup: others.directory)
        try state.note(cgroup: "/etc/nightbell-\(stage.instance.name)")
        #expect(try stage.suspender(.cgroup).thawLeftovers() == [])
        #expect(try child.isSilent())
        try SmallFile.write("0", to: place + "/cgroup.freeze")
        #expect(try child.hear() == "!")
        child.end()
    }

    /// The next run is started elsewhere in the hierarchy.
    @Test func leftoversElsewhereAreFound() throws {
        let elsewhere = try ScratchCgroup()
        let child = try Child.awakeEcho()
        let there = InstanceNames(name: stage.instance.name, cgroupParent: elsewhere.name)
        do {
            let suspender = try makeSuspender(.cgroup, instance: there, state: stage.state())
            try suspender.attach(0, child)
            try suspender.freezeFully(0)
        }
        let suspender = try stage.suspender(.cgroup)
        #expect(suspender.thawLeftovers().map(\.pid) == [child.pid])
        #expect(try child.answers())
        #expect(try SmallFile.names(in: elsewhere.directory).allSatisfy { !$0.hasPrefix("nightbell-") })
        suspender.detachAll()
    }
}
