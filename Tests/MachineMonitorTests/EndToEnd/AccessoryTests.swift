import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// The accessory of `Examples/Modes`, asleep, with a device of umockdev. Only udev tells of the device: its
/// name stays.
@Suite(
    "An accessory", .serialized, .timeLimit(.minutes(40)),
    .disabled(if: isSanitized, "a sanitizer and umockdev both want to be loaded first"))
struct AccessoryTests {
    private static let name = "/dev/serial/by-id/usb-adapter"

    @Test(
        "Its data wakes, and so do its removal and its return, with which the session is made again",
        arguments: SupervisorProcess.ways)
    func wholeLife(way: String) throws {
        let machine = try MockMachine()
        // The supervisor itself is not in the mock: it needs the cgroups of the real machine.
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let monitor = directory.file("monitor")
        let variables = machine.environment.map { "'\($0.key)=\($0.value)'" }.joined(separator: " ")
        try write(
            "#!/bin/sh\nexec /usr/bin/env \(variables) '\(product("nightbell-monitor"))' \"$@\"\n",
            to: monitor)
        let supervisor = try SupervisorProcess(suspension: way, monitor: monitor)
        let client = try supervisor.example(
            "org.example.accessory", ["accessory", Self.name], environment: machine.environment)
        let bystander = try supervisor.example("org.example.bystander", ["unlock"])
        try client.reports("has a session")
        try bystander.fallsAsleep()
        let isKnown = try eventually(within: 30_000) {
            try supervisor.status().contains("\"name\":\"devices\",\"available\":true")
        }
        try check(isKnown, "the devices do not become known: \(try supervisor.status())")

        func happens(_ action: String, _ reports: String...) throws {
            try client.fallsAsleep()
            let wakes = try client.wakes
            try machine.tell(action)
            for text in reports { try client.reports(text) }
            #expect(try client.wakes > wakes)
        }
        for round in 1...3 {
            try happens("send H", "is woken: socket", "data: [72]")
            try happens("send \(round)", "is woken: socket", "data: [\(48 + round)]")
            // The descriptor hangs up, and udev tells of it: one comes first.
            try happens("remove", "the session has ended")
            try client.reports("reader: disconnected")
            try happens("add", "is woken: device", "reader: connected(node: \"/dev/", "has a session")
        }
        try happens("send !", "data: [33]")
        try client.fallsAsleep()
        #expect(try client.lines().count { $0.contains("has a session") } == 4)
        #expect(try client.lines().count { $0.contains("reader: connected") } == 3)
        #expect(try client.lines().count { $0.contains("reader: disconnected") } == 3)
        #expect(try bystander.wakes == 0)
    }

    private func write(_ text: String, to path: String) throws {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o755)
        let bytes = Array(text.utf8)
        _ = try systemCall("write") { Glibc.write(file.rawValue, bytes, bytes.count) }
    }
}
