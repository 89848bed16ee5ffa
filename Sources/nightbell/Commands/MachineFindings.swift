import Glibc
import LinuxSystem
import Nightbell
import StatusReports

/// The components that tell about the machine, whether or not a client needs them now. Starts no service.
enum MachineFindings {
    private struct Component {
        let key: String
        let name: String
        let service: String
        /// The clients that go without something if it is missing.
        let loss: String
    }

    private static let components = [
        Component(
            key: "logind", name: "logind", service: "org.freedesktop.login1",
            loss: "no keep-alive runs before the machine sleeps, and waitsForUnlock waits for nothing"),
        Component(
            key: "network-manager", name: "NetworkManager", service: "org.freedesktop.NetworkManager",
            loss: "metered connections are not known; other networks are"),
        Component(
            key: "upower", name: "UPower", service: "org.freedesktop.UPower",
            loss: "whether the machine runs on its battery is not known"),
        Component(
            key: "bluez", name: "BlueZ", service: "org.bluez", loss: "no Bluetooth device wakes a client"),
        Component(
            key: "geoclue", name: "GeoClue", service: "org.freedesktop.GeoClue2",
            loss: "no location wakes a client"),
    ]

    /// - Parameter status: of the supervisor; nil: none can be reached.
    static func gather(_ status: SupervisorStatus?) -> [Finding] {
        monitorFindings() + [notificationServer(), pipeWire(), clock(), transferProgram()]
            + [status.map(capability)].compactMap(\.self)
    }

    // MARK: The bus

    /// The monitor's program has what it needs for the bus, so it is asked; that it can run at all is a
    /// finding as well.
    private static func monitorFindings() -> [Finding] {
        guard let path = programBeside("nightbell-monitor"), unsafe access(path, X_OK) == 0 else {
            return [
                Finding(
                    "monitor-program", .warning, "there is no nightbell-monitor beside nightbell",
                    remedy:
                        "Install it, or name it to nightbelld (monitorProgram): without it no fact is known.")
            ]
        }
        do throws(SystemError) {
            let outcome = try ProgramOutput(of: [path, "--names"], withinMilliseconds: 5_000)
            guard outcome.code == 0 || outcome.code == EX_UNAVAILABLE else {
                return [
                    Finding(
                        "monitor-program", .warning, "nightbell-monitor cannot run: \(outcome.problem)",
                        remedy: "Install the libraries that it needs: libsystemd, libudev and libpipewire.")
                ]
            }
            let program = Finding("monitor-program", .ok, "nightbell-monitor runs")
            guard outcome.code == 0 else {
                return [
                    program,
                    Finding(
                        "system-bus", .warning, outcome.problem,
                        remedy: "Start D-Bus: sleep, users, power, location and Bluetooth are known by it."),
                ]
            }
            let names = Set(outcome.output.split(separator: "\n").map(String.init))
            return [program] + components.map { finding($0, isThere: names.contains($0.service)) }
        } catch {
            return [
                Finding(
                    "monitor-program", .warning, "nightbell-monitor cannot run: \(error)",
                    remedy: "Make it executable for you.")
            ]
        }
    }

    private static func finding(_ component: Component, isThere: Bool) -> Finding {
        isThere
            ? Finding(component.key, .ok, "\(component.name) is on the system bus, or is started by it")
            : Finding(
                component.key, .warning, "\(component.name) is not on the system bus: \(component.loss)",
                remedy: "Install and start it, if clients of this machine need it.")
    }

    private static func programBeside(_ name: String) -> String? {
        guard let own = try? readLink("/proc/self/exe"), let slash = own.lastIndex(of: "/") else {
            return nil
        }
        return own[...slash] + name
    }

    // MARK: Others

    /// It runs in each user's session. Root looks for that of any user.
    private static func pipeWire() -> Finding {
        var directories = [Environment.value("PIPEWIRE_RUNTIME_DIR") ?? Environment.value("XDG_RUNTIME_DIR")]
            .compactMap(\.self)
        if geteuid() == 0 {
            directories += ((try? SmallFile.names(in: "/run/user")) ?? []).sorted().map { "/run/user/" + $0 }
        }
        if let found = directories.first(where: { unsafe access($0 + "/pipewire-0", F_OK) == 0 }) {
            return Finding("pipewire", .ok, "PipeWire listens at \(found)/pipewire-0")
        }
        return Finding(
            "pipewire", .warning, "no PipeWire listens: clients' own word of their media counts",
            remedy: "Start PipeWire in the sessions of the users with clients that play or record.")
    }

    /// The transfer program needs more than the monitor's: libcurl and SQLite.
    private static func transferProgram() -> Finding {
        guard let path = programBeside("nightbell-transfer"), unsafe access(path, X_OK) == 0 else {
            return Finding(
                "transfer-program", .warning, "there is no nightbell-transfer beside nightbell",
                remedy:
                    "Install it, or name it to nightbelld (transferProgram): without it no client has transfers."
            )
        }
        do throws(SystemError) {
            let outcome = try ProgramOutput(of: [path, "--help"], withinMilliseconds: 5_000)
            guard outcome.code == 0 else {
                return Finding(
                    "transfer-program", .warning, "nightbell-transfer cannot run: \(outcome.problem)",
                    remedy: "Install the libraries that it needs: libcurl and libsqlite3.")
            }
            return Finding("transfer-program", .ok, "nightbell-transfer runs")
        } catch {
            return Finding(
                "transfer-program", .warning, "nightbell-transfer cannot run: \(error)",
                remedy: "Make it executable for you.")
        }
    }

    /// Of the caller's own session.
    private static func notificationServer() -> Finding {
        let name = "org.freedesktop.Notifications"
        let remedy = "Start a notification server in the sessions of the users with clients that notify them."
        guard let path = programBeside("nightbell-monitor"),
            let outcome = try? ProgramOutput(of: [path, "--session", "--names"], withinMilliseconds: 5_000),
            outcome.code == 0
        else {
            return Finding(
                "notification-server", .warning, "no session's bus is known here: notifications wait for one",
                remedy: remedy)
        }
        guard outcome.output.split(separator: "\n").contains(Substring(name)) else {
            return Finding(
                "notification-server", .warning, "\(name) is not on the session's bus: notifications wait",
                remedy: remedy)
        }
        return Finding(
            "notification-server", .ok, "a notification server is on the session's bus, or is started by it")
    }

    private static func clock() -> Finding {
        TimerDescriptor.canWakeMachine
            ? Finding("real-time-clock", .ok, "the machine has a clock that can wake it")
            : Finding(
                "real-time-clock", .warning,
                "the machine has no clock that can wake it: keep-alives run after its sleep",
                remedy: "None on this machine, unless its firmware hides the clock.")
    }

    /// Whether the supervisor's process may set alarms; it may have had no reason to set one yet.
    private static func capability(_ status: SupervisorStatus) -> Finding {
        let key = "wake-alarm"
        guard let text = try? SmallFile.readText("/proc/\(status.processID)/status"),
            let line = text.split(separator: "\n").first(where: { $0.hasPrefix("CapEff:") }),
            let capabilities = UInt64(line.dropFirst("CapEff:".count).drop { $0 == "\t" }, radix: 16)
        else {
            return Finding(key, .warning, "the capabilities of process \(status.processID) are not known")
        }
        guard capabilities & 1 << 35 == 0 else {
            return Finding(key, .ok, "the supervisor may wake the machine (CAP_WAKE_ALARM)")
        }
        return Finding(
            key, .warning, "the supervisor may not wake the machine: keep-alives run after its sleep",
            remedy: "Give nightbelld the capability: AmbientCapabilities=CAP_WAKE_ALARM in its unit.")
    }
}
