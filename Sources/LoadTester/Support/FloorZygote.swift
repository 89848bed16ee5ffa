import CFloors
import Glibc
import LinuxSystem

/// The floor's waker and, forked from it, its sleepers: after this preparation only C runs.
///
/// Inherits the shared memory as descriptor 3 and a lifetime pipe as descriptor 4.
struct FloorZygote {
    private let first: Int
    private let count: Int
    private let transport: Transport
    private let callPlan: CallPlan
    /// The parent of the sleepers' cgroups; nil: they are stopped by signal.
    private let cgroup: String?
    private let sharedMemory: SharedMemory

    static func arguments(
        first: Int, count: Int, slots: Int, callers: Callers, cgroup: String?
    ) -> [String] {
        [
            "\(first)", "\(count)", "\(slots)", callers.transport.rawValue, callers.callPlan.argument,
            cgroup ?? "-",
        ]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 6, let first = Int(arguments[0]), let count = Int(arguments[1]),
            let slots = Int(arguments[2]), let transport = Transport(rawValue: arguments[3])
        else { throw .missing("arguments") }
        self.first = first
        self.count = count
        self.transport = transport
        callPlan = CallPlan(argument: arguments[4])
        cgroup = arguments[5] == "-" ? nil : arguments[5]
        sharedMemory = try SharedMemory(inherited: 3, slots: slots)
    }

    func run() throws {
        _ = cfloors_raise_descriptor_limit()
        cfloors_ignore_children()
        var targets: [cfloors_target] = []
        for index in first..<first + count {
            let socket = try transport.connect(to: callPlan[index], as: index)
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            if child == 0 {
                var kept = [3, socket]
                cfloors_close_all_but(&kept, kept.count)
                cfloors_sleeper(socket, sharedMemory[index].pointer)
                _exit(1)
            }
            var target = cfloors_target(socket: socket, freezer: -1, process: -1)
            if let cgroup {
                let sleeperCgroup = FloorCgroup(parent: cgroup, index: index)
                try sleeperCgroup.create(for: child)
                target.freezer = open(sleeperCgroup.freezer, O_WRONLY | O_CLOEXEC)
                guard target.freezer >= 0 else { throw LoadError(failed: "open \(sleeperCgroup.freezer)") }
            } else {
                target.process = cfloors_pidfd(child)
                guard target.process >= 0 else { throw LoadError(failed: "pidfd_open") }
            }
            targets.append(target)
            sharedMemory[index].pointer.pointee.pid = child
        }
        // Until here a signal ends the process at once; the sleepers end with it.
        cfloors_catch_interrupts()
        let code = cfloors_waker(targets, targets.count, 4)
        guard code == 0 || code == EINTR else { throw LoadError("the floor's waker", code: code) }
    }
}

/// The cgroup of one of the floor's sleepers.
struct FloorCgroup {
    let directory: String

    init(parent: String, index: Int) {
        directory = "\(parent)/\(Self.prefix)\(index)"
    }

    static let prefix = "floor-"

    var freezer: String { directory + "/cgroup.freeze" }

    func create(for process: pid_t) throws(LoadError) {
        guard mkdir(directory, 0o755) == 0 || errno == EEXIST else {
            throw LoadError(failed: "mkdir \(directory)")
        }
        do {
            try SmallFile.write("\(process)", to: directory + "/cgroup.procs")
        } catch {
            throw .system(error)
        }
    }
}
