import CUdev
import EventHandlers
import EventLoop
import Glibc
import LinuxSystem
import NightbellWire

/// Devices by their names below `/dev`, such as `/dev/serial/by-id/…`, `/dev/ttyACM0` or `/dev/hidraw0`:
/// those of the demanded names that are present, and the nodes that they lead to.
///
/// The events of udev and of the names' directories only say when to look. So it does not matter if some are
/// lost.
final class DeviceSource: Source {
    private let context: SourceContext
    private var names: [String] = []
    private var paths: PathWatch?
    private var events: UdevEvents?
    private var settling: LoopTimer?

    /// In milliseconds: a device that is plugged in causes many events, and one that is reset goes and comes.
    private static let pause: Int64 = 50

    init(_ context: SourceContext) {
        self.context = context
        settling = LoopTimer(context.loop) { [unowned self] in report() }
    }

    func update(_ demand: WireMonitorDemand) {
        let names = Set(demand.devices.filter { $0.hasPrefix("/") }).sorted()
        guard names != self.names || paths == nil else { return }
        self.names = names
        paths = PathWatch(context.loop, names) { [unowned self] in look() }
        if names.isEmpty {
            events = nil
        } else if events == nil {
            // Without udev, the directories suffice.
            events = UdevEvents(context.loop) { [unowned self] in look() }
        }
        context.reports.setAvailability(.devices, reason: nil)
        report()
    }

    private func look() {
        guard let settling, settling.deadline == nil else { return }
        settling.set(milliseconds: Self.pause)
    }

    private func report() {
        var devices = WireMonitorReport.Devices()
        for name in names {
            do throws(SystemError) {
                guard let node = try Self.node(of: name) else {
                    devices.absent.append(name)
                    continue
                }
                var device = WireMonitorReport.Devices.Device()
                device.name = name
                device.node = node
                devices.present.append(device)
            } catch {
                // It is unknown, as all that is not reported.
            }
        }
        context.reports.report(.devices, .devices(devices))
    }

    /// The device node that the name leads to; nil: it leads to none. The device itself is not opened, which
    /// would have effects on some. Throws if that cannot be told: there are no descriptors left, or a
    /// directory may not be searched.
    private static func node(of name: String) throws(SystemError) -> String? {
        do throws(SystemError) {
            let place = try OwnedDescriptor(opening: name, pathOnly)
            var status = stat()
            _ = try systemCall("fstat") { unsafe fstat(place.rawValue, &status) }
            guard status.st_mode & S_IFMT == S_IFCHR else { return nil }
            let node = try readLink("/proc/self/fd/\(place.rawValue)")
            guard node.utf8.count <= longestNode else {
                throw SystemError(code: ENAMETOOLONG, call: "readlink")
            }
            return node
        } catch {
            guard error.code == ENOENT || error.code == ENOTDIR else { throw error }
            return nil
        }
    }

    /// In bytes: the supervisor has no room for a longer one.
    private static let longestNode = 255

    /// `O_PATH`, which is only in the headers for `_GNU_SOURCE`.
    private static let pathOnly: CInt = 0o10_000_000
}

/// The events of udev about devices that are connected to the machine; their content is not used.
@safe
final class UdevEvents {
    private let udev: OpaquePointer
    private let monitor: OpaquePointer
    private let handler: () -> Void
    private var watch: DescriptorWatch?

    private static let eventsPerTurn = 64

    /// nil: there is no udev.
    init?(_ loop: HandlerLoop, _ handler: @escaping () -> Void) {
        guard let udev = unsafe udev_new() else { return nil }
        guard let monitor = unsafe udev_monitor_new_from_netlink(udev, "udev") else {
            unsafe udev_unref(udev)
            return nil
        }
        unsafe self.udev = udev
        unsafe self.monitor = monitor
        self.handler = handler
        for subsystem in ["tty", "hidraw", "usb"] {
            // The kernel discards the events of others.
            unsafe udev_monitor_filter_add_match_subsystem_devtype(monitor, subsystem, nil)
        }
        guard unsafe udev_monitor_enable_receiving(monitor) >= 0 else { return nil }
        let descriptor = unsafe udev_monitor_get_fd(monitor)
        do throws(LoopError) {
            watch = try DescriptorWatch(loop, descriptor, .read) { [unowned self] _ in receive() }
        } catch {
            return nil
        }
    }

    deinit {
        watch = nil
        unsafe udev_monitor_unref(monitor)
        unsafe udev_unref(udev)
    }

    private func receive() {
        for _ in 0..<Self.eventsPerTurn {
            guard let device = unsafe udev_monitor_receive_device(monitor) else { break }
            unsafe udev_device_unref(device)
        }
        handler()
    }
}
