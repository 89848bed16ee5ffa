import CTestSupport
import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

private let nobody: uid_t = 65_534

/// Suspension without privileges. Each test changes its user on a thread of its own.
@Suite(.enabled(if: canFreeze && geteuid() == 0)) struct PrivilegeTests {
    private let stage: Fixture

    init() throws {
        stage = try Fixture()
        #expect(chmod(stage.directory.path, 0o777) == 0)
    }

    private func asOtherUser(_ body: @escaping @Sendable (Fixture) throws -> Void) throws {
        let stage = stage
        try onOwnThread {
            try #require(ctest_become(nobody) == 0)
            try body(stage)
        }
    }

    @Test func theFreezerIsRefused() throws {
        try asOtherUser { stage in
            let error = #expect(throws: SuspensionError.self) { _ = try stage.suspender(.cgroup) }
            #expect(error?.code == .notPermitted)
            #expect(error?.underlying?.code == EACCES)
            #expect(error?.description.contains("not permitted") == true)
        }
    }

    @Test func autoFallsBackToSignals() throws {
        #expect(try stage.suspender(.auto).method == .cgroup)
        try stage.suspender(.auto).detachAll()
        #expect(chown(stage.directory.file("runtime-state"), nobody, nobody) == 0)
        try asOtherUser { stage in
            let suspender = try stage.suspender(.auto)
            #expect(suspender.method == .signal)
            #expect(suspender.detail.contains("not permitted"))
            let child = try Child.awakeEcho()
            #expect(ProcFS.uid(child.pid) == nobody)
            try suspender.attach(0, child)
            try suspender.freezeFully(0)
            #expect(try child.isSilent())
            suspender.detachAll()
            #expect(try child.hear() == "!")
        }
    }

    @Test func othersProcessesAreRefused() throws {
        let rootsChild = try Child.awakeEcho()
        let pid = rootsChild.pid
        try asOtherUser { stage in
            let suspender = try stage.suspender(.signal)
            let error = #expect(throws: SuspensionError.self) {
                try suspender.attach(slot: 0, process: ProcessHandle(opening: pid))
            }
            #expect(error?.code == .notPermitted && error?.underlying?.code == EPERM)
        }
        #expect(try rootsChild.answers())
    }

    /// A user that owns a part of the hierarchy, with clients outside of it: those are stopped by signals.
    @Test func autoFallsBackForOneClient() throws {
        let parent = try ScratchCgroup()
        #expect(chown(parent.directory, nobody, nobody) == 0)
        #expect(chown(parent.directory + "/cgroup.procs", nobody, nobody) == 0)
        let stage = try Fixture(cgroupParent: parent.name)
        #expect(chmod(stage.directory.path, 0o777) == 0)
        let inside = try ScratchChild(in: parent)
        let insider = inside.child.pid
        try onOwnThread {
            try #require(ctest_become(nobody) == 0)
            let suspender = try stage.suspender(.auto)
            #expect(suspender.method == .cgroup)
            let child = try Child.awakeEcho()
            try suspender.attach(0, child)
            #expect(suspender.method(slot: 0) == .signal)
            #expect(suspender.detail.contains("1 client"))
            try suspender.freezeFully(0)
            #expect(try child.isSilent())
            try suspender.thaw(slot: 0)
            #expect(try child.hear() == "!")
            try suspender.attach(slot: 1, process: ProcessHandle(opening: insider))
            #expect(suspender.method(slot: 1) == .cgroup)
            try suspender.freezeFully(1)
            suspender.detachAll()
        }
        #expect(cgroup(of: insider) == parent.directory)
        inside.child.end()
    }

    @Test func factsAreReported() throws {
        try asOtherUser { _ in
            let facts = MachineFacts.gather()
            #expect(facts["user"]?.status == .warning)
            #expect(facts["cgroup2"]?.status == .ok)
            #expect(facts["cgroup-place"]?.status == .missing)
            #expect(facts["cgroup-place"]?.remedy?.contains("Delegate=yes") == true)
            #expect(facts["freezer"]?.status == .missing)
            #expect(facts["signals"]?.status == .ok)
            #expect(!facts.isComplete)
        }
    }
}

/// A process that lives in a cgroup.
private final class ScratchChild {
    let child: Child

    init(in cgroup: ScratchCgroup) throws {
        child = try Child.awakeEcho()
        try cgroup.add(child.pid)
    }
}

@Suite struct MachineFactsTests {
    @Test func everyFactIsThereOnce() {
        let facts = MachineFacts.gather().facts
        #expect(
            facts.map(\.key) == [
                "kernel", "user", "cgroup2", "cgroup-place", "cgroup-move", "freezer", "signals", "pidfd",
                "peer-pidfd", "descriptors", "pressure",
            ])
        for fact in facts where fact.status == .missing && fact.key != "freezer" {
            #expect(fact.remedy != nil, "\(fact.key)")
        }
    }

    @Test func slowMovesAreAWarningWithARemedy() {
        let quick = FreezerTrial.moveFact(412)
        #expect(quick.status == .ok && quick.explanation.contains("412 µs"))
        let slow = FreezerTrial.moveFact(15_400)
        #expect(slow.status == .warning && slow.explanation.contains("took 15 ms"))
        #expect(slow.remedy?.contains("favordynmods") == true)
    }

    @Test(.enabled(if: canFreeze)) func aRightMachineIsComplete() {
        let facts = MachineFacts.gather()
        #expect(facts["freezer"]?.status == .ok && facts["signals"]?.status == .ok)
    }

    /// Neither a cgroup nor a process is left behind.
    @Test(.enabled(if: canFreeze)) func tryingLeavesNoTrace() throws {
        let parent = try ScratchCgroup()
        let facts = MachineFacts.gather(cgroupParent: parent.name)
        #expect(facts["cgroup-place"]?.explanation.contains(parent.directory) == true)
        #expect(facts["freezer"]?.status == .ok)
        #expect(try SmallFile.names(in: parent.directory).allSatisfy { !$0.hasPrefix("nightbell") })
        #expect(try SmallFile.readText(parent.directory + "/cgroup.events").hasPrefix("populated 0"))
    }
}
