import CTestSupport
import Descriptors
import EdgeTestSupport
import Glibc
import Suspension
import Testing

/// Where processes are, and where they go afterwards.
@Suite(.enabled(if: canFreeze)) struct FreezerTests {
    private let stage: Stage
    private let directory: String

    init() throws {
        stage = try Stage()
        directory = try stage.cgroupDirectory()
    }

    @Test func aProcessReturnsToWhereItWas() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        #expect(suspender.detail.contains(directory))
        let child = try Child.awakeEcho()
        try home.add(child.pid)
        try suspender.attach(7, child)
        #expect(cgroup(of: child.pid) == directory + "/client-7")
        try suspender.freezeFully(7)
        suspender.detach(slot: 7)
        #expect(cgroup(of: child.pid) == home.directory)
        #expect(!exists(directory + "/client-7"))
        suspender.detachAll()
        #expect(!exists(directory))
        child.end()
    }

    @Test func whoseHomeIsGoneGoesToOurParent() throws {
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        do {
            let home = try ScratchCgroup()
            try home.add(child.pid)
            try suspender.attach(0, child)
        }
        suspender.detach(slot: 0)
        #expect(cgroup(of: child.pid) == cgroup(of: getpid()))
        #expect(!exists(directory + "/client-0"))
        suspender.detachAll()
    }

    /// `sh` waits for `cat`, which was there before: only the one who asked for it is frozen.
    @Test func childrenFromBeforeAreLeftAlone() throws {
        let suspender = try stage.suspender(.cgroup)
        let shell = try Child("/bin/sh", "-c", "cat; :")
        #expect(try shell.answers())
        try suspender.attach(0, shell)
        try suspender.freezeFully(0)
        #expect(try shell.answers())
        suspender.detachAll()
        try endInput(of: shell)
    }

    /// Those that come later belong to it, and move with it.
    @Test func childrenFromAfterwardsAreFrozenToo() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        let shell = try Child("/bin/sh", "-c", "echo; read line; cat; :")
        #expect(try shell.hear() != nil)
        try home.add(shell.pid)
        try suspender.attach(0, shell)
        try shell.send("\n")
        #expect(try shell.answers())
        try suspender.freezeFully(0)
        #expect(try shell.isSilent())
        suspender.detach(slot: 0)
        #expect(try shell.hear() == "!")
        let cat = try #require(
            pid_t(SmallFile.readText("/proc/\(shell.pid)/task/\(shell.pid)/children").filter { $0 != " " }))
        #expect(cgroup(of: shell.pid) == home.directory)
        #expect(cgroup(of: cat) == home.directory)
        suspender.detachAll()
        #expect(!exists(directory))
        try endInput(of: shell)
    }

    /// A client's child that becomes a client itself belongs where its parent came from.
    @Test func aClientsChildHasItsParentsHome() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        let first = try Child.awakeEcho()
        let second = try Child.awakeEcho()
        try home.add(first.pid)
        try suspender.attach(0, first)
        // As if the first one had started it.
        try SmallFile.write("\(second.pid)", to: directory + "/client-0/cgroup.procs")
        try suspender.attach(1, second)
        suspender.detach(slot: 0)
        suspender.detach(slot: 1)
        #expect(cgroup(of: second.pid) == home.directory)
        suspender.detachAll()
        first.end()
        second.end()
    }

    @Test func whoIsMovedAwayIsNotSaidToBeFrozen() throws {
        let suspender = try stage.suspender(.cgroup)
        let elsewhere = try ScratchCgroup()
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        try elsewhere.add(child.pid)
        let error = #expect(throws: SuspensionError.self) { _ = try suspender.freeze(slot: 0) }
        #expect(error?.code == .processMoved)
        #expect(try child.answers())
        suspender.detachAll()
        child.end()
    }

    /// Detached in the very moment of its death, its cgroup may still be held; it goes with the rest.
    @Test func nothingIsLeftOfTheDying() throws {
        let suspender = try stage.suspender(.cgroup)
        for slot in UInt32(0)..<10 {
            let child = try Child.awakeEcho()
            let handle = try child.handle()
            try suspender.attach(slot, child)
            if slot.isMultiple(of: 2) { try suspender.freezeFully(slot) }
            kill(child.pid, SIGKILL)
            suspender.detach(slot: slot)
            _ = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000)
            child.reap()
        }
        suspender.detachAll()
        #expect(!exists(directory))
    }

    @Test func aParentOfOurOwnChoice() throws {
        let parent = try ScratchCgroup()
        let stage = try Stage(cgroupParent: parent.name)
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        #expect(cgroup(of: child.pid)?.hasPrefix(parent.directory + "/nightbell-") == true)
        suspender.detachAll()
        let missing = try Stage(cgroupParent: "/no/such/place")
        let error = #expect(throws: SuspensionError.self) { _ = try missing.suspender(.cgroup) }
        #expect(error?.code == .systemError && error?.underlying?.code == ENOENT)
    }

    @Test(arguments: ["", "a/b", ".."]) func namesThatAreNoNames(name: String) throws {
        let instance = InstancePaths(name: name, runtimeDirectory: stage.directory.path)
        if name == ".." {
            // `nightbell-..` is a name like any other.
            try makeSuspender(.cgroup, instance: instance).detachAll()
        } else {
            #expect(throws: SuspensionError.self) { _ = try makeSuspender(.cgroup, instance: instance) }
        }
    }

    private func endInput(of child: Child) throws {
        #expect(shutdown(child.channel.rawValue, CInt(SHUT_WR)) == 0)
        child.reap()
    }
}

@Suite struct CgroupMountTests {
    @Test func isFoundWhereverItIs() {
        let unified = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
        #expect(CgroupMount.find(in: unified)?.path == "/sys/fs/cgroup")
        let hybrid = """
            31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
            37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer
            41 31 0:38 / /sys/fs/cgroup/with\\040space rw,relatime shared:9 master:1 - cgroup2 none rw
            """
        #expect(CgroupMount.find(in: hybrid)?.path == "/sys/fs/cgroup/with space")
        #expect(CgroupMount.find(in: "37 31 0:34 / /sys/fs/cgroup rw - cgroup cgroup rw\n") == nil)
        #expect(CgroupMount.find(in: "cgroup2 cgroup2 -\n\n- cgroup2\n") == nil)
    }

    @Test func processesAreFoundInIt() throws {
        let mount = try #require(CgroupMount.find(in: "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw"))
        #expect(mount.directory(inProcCgroup: "9:name=systemd:/x\n0::/\n") == "/cg")
        #expect(mount.directory(inProcCgroup: "0::/a/b\n") == "/cg/a/b")
        #expect(mount.directory(inProcCgroup: "0::/../a\n") == nil)
        #expect(mount.directory(inProcCgroup: "1:cpu:/a\n") == nil)
        let container = try #require(CgroupMount.find(in: "31 23 0:28 /pod /cg rw - cgroup2 cgroup2 rw"))
        #expect(container.directory(inProcCgroup: "0::/pod/a\n") == "/cg/a")
        #expect(container.directory(inProcCgroup: "0::/pod\n") == "/cg")
        #expect(container.directory(inProcCgroup: "0::/podium\n") == nil)
    }
}
