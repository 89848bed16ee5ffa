import CTestSupport
import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

/// The cgroups of processes while attached and afterwards.
@Suite(.enabled(if: canFreeze)) struct FreezerTests {
    private let stage: Fixture
    private let directory: String

    init() throws {
        stage = try Fixture()
        directory = try stage.cgroupDirectory()
    }

    @Test func aProcessReturnsToWhereItWas() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        #expect(suspender.detail.contains(directory))
        let child = try Child.awakeEcho()
        try home.add(child.pid)
        try suspender.attach(7, child)
        #expect(cgroup(of: child.pid) == place(in: home) + "/client-7")
        try suspender.freezeFully(7)
        suspender.detach(slot: 7)
        #expect(cgroup(of: child.pid) == home.directory)
        #expect(!exists(place(in: home)))
        suspender.detachAll()
        #expect(!exists(directory))
        child.end()
    }

    /// The limits of its original cgroup apply to the process and its children all the time; its accounting
    /// does not change either.
    @Test func aClientStaysBelowItsOwnCgroup() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        let shell = try Child("/bin/sh", "-c", "echo; read line; cat; :")
        #expect(try shell.hear() != nil)
        try home.add(shell.pid)
        let other = try Child.awakeEcho()
        try home.add(other.pid)
        try suspender.attach(0, shell)
        try shell.send("\n")
        #expect(try shell.answers())
        let cat = try #require(
            pid_t(SmallFile.readText("/proc/\(shell.pid)/task/\(shell.pid)/children").filter { $0 != " " }))
        for _ in 0..<3 {
            for pid in [shell.pid, cat] {
                #expect(cgroup(of: pid)?.hasPrefix(home.directory + "/") == true)
            }
            try suspender.freezeFully(0)
            #expect(try shell.isSilent())
            // Processes beside it are not touched.
            #expect(try other.answers())
            #expect(cgroup(of: shell.pid)?.hasPrefix(home.directory + "/") == true)
            try suspender.thaw(slot: 0)
            #expect(try shell.hear() == "!")
        }
        suspender.detachAll()
        #expect(cgroup(of: shell.pid) == home.directory && cgroup(of: cat) == home.directory)
        other.end()
        try endInput(of: shell)
    }

    /// A limit of the administrator, or of the kernel: it is frozen below our own cgroup.
    @Test func aCgroupThatCannotHaveAnotherBelow() throws {
        let home = try ScratchCgroup()
        try SmallFile.write("0", to: home.directory + "/cgroup.max.descendants")
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        try home.add(child.pid)
        try suspender.attach(4, child)
        #expect(cgroup(of: child.pid) == directory + "/client-4")
        try suspender.freezeFully(4)
        #expect(try child.isSilent())
        suspender.detachAll()
        #expect(try child.hear() == "!")
        #expect(cgroup(of: child.pid) == home.directory)
        child.end()
    }

    /// Another program can move the client away and remove the empty cgroup.
    @Test(arguments: [false, true]) func aRemovedCgroupIsMadeAgain(isElsewhere: Bool) throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        if isElsewhere { try home.add(child.pid) }
        try suspender.attach(0, child)
        let place = isElsewhere ? place(in: home) : directory
        let origin = try ScratchCgroup()
        for _ in 0..<2 {
            try origin.add(child.pid)
            #expect(rmdir(place + "/client-0") == 0 && rmdir(place) == 0)
            let error = #expect(throws: SuspensionError.self) { _ = try suspender.freeze(slot: 0) }
            #expect(error?.code == .processMoved)
            #expect(try child.answers())
            suspender.detach(slot: 0)
            if isElsewhere {
                try home.add(child.pid)
            } else {
                try SmallFile.write("\(child.pid)", to: #require(cgroup(of: getpid())) + "/cgroup.procs")
            }
            try suspender.attach(0, child)
            #expect(cgroup(of: child.pid) == place + "/client-0")
            try suspender.freezeFully(0)
            #expect(try child.isSilent())
            try suspender.thaw(slot: 0)
            #expect(try child.hear() == "!")
        }
        suspender.detachAll()
        #expect(!exists(place))
        child.end()
    }

    @Test func aProcessWithoutOriginGoesToOurParent() throws {
        let parent = try ScratchCgroup()
        let stage = try Fixture(cgroupParent: parent.name)
        let directory = try stage.cgroupDirectory()
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        do {
            let home = try ScratchCgroup()
            try home.add(child.pid)
            try suspender.attach(0, child)
        }
        suspender.detach(slot: 0)
        #expect(cgroup(of: child.pid) == parent.directory)
        #expect(!exists(directory + "/client-0"))
        suspender.detachAll()
        child.end()
    }

    /// `sh` waits for `cat`, which was started before: only `cat`, which was attached, is frozen.
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

    @Test("Processes in cgroups that a client has made below its own go back, too")
    func innerCgroups() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        try home.add(child.pid)
        try suspender.attach(0, child)
        let client = try #require(cgroup(of: child.pid))
        let inner = client + "/inner.scope/innermost"
        for path in [client + "/inner.scope", inner] { _ = try systemCall("mkdir") { mkdir(path, 0o755) } }
        try SmallFile.write("\(child.pid)", to: inner + "/cgroup.procs")
        try suspender.freezeFully(0)
        #expect(try child.isSilent())
        suspender.detach(slot: 0)
        #expect(try child.hear() == "!")
        #expect(cgroup(of: child.pid) == home.directory && !exists(client))
        suspender.detachAll()
        child.end()
    }

    /// Later children belong to it, and move with it.
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

    /// A client's child that becomes a client itself belongs to its parent's original cgroup.
    @Test func aClientsChildHasItsParentsHome() throws {
        let home = try ScratchCgroup()
        let suspender = try stage.suspender(.cgroup)
        let first = try Child.awakeEcho()
        let second = try Child.awakeEcho()
        try home.add(first.pid)
        try suspender.attach(0, first)
        // Simulates that the first one had started it.
        try SmallFile.write("\(second.pid)", to: place(in: home) + "/client-0/cgroup.procs")
        try suspender.attach(1, second)
        suspender.detach(slot: 0)
        suspender.detach(slot: 1)
        #expect(cgroup(of: second.pid) == home.directory)
        suspender.detachAll()
        first.end()
        second.end()
    }

    @Test func aProcessThatWasMovedAwayIsNotReportedFrozen() throws {
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

    /// A process detached at the moment of its death may still hold its cgroup, which is removed at the end.
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
        let stage = try Fixture(cgroupParent: parent.name)
        let suspender = try stage.suspender(.cgroup)
        let child = try Child.awakeEcho()
        try suspender.attach(0, child)
        #expect(cgroup(of: child.pid)?.hasPrefix(parent.directory + "/nightbell-") == true)
        suspender.detachAll()
        let missing = try Fixture(cgroupParent: "/no/such/place")
        let error = #expect(throws: SuspensionError.self) { _ = try missing.suspender(.cgroup) }
        #expect(error?.code == .systemError && error?.underlying?.code == ENOENT)
    }

    @Test(arguments: ["", "a/b", ".."]) func invalidNamesAreRefused(name: String) throws {
        let instance = InstanceNames(name: name)
        if name == ".." {
            // `nightbell-..` is a name like any other.
            try makeSuspender(.cgroup, instance: instance, state: stage.state()).detachAll()
        } else {
            let state = try stage.state()
            #expect(throws: SuspensionError.self) {
                _ = try makeSuspender(.cgroup, instance: instance, state: state)
            }
        }
    }

    /// The place of clients from that cgroup.
    private func place(in home: ScratchCgroup) -> String {
        home.directory + "/nightbell-" + stage.instance.name
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
