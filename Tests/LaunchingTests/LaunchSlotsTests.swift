import EdgeTestSupport
import Foundation
import Glibc
import Launching
import LinuxSystem
import Testing

@Suite("Launch slots")
struct LaunchSlotsTests {
    /// A socket with a line to read, and a program that prints the line and its descriptors.
    private final class Reader {
        let directory: TemporaryDirectory
        private(set) var pair: Pair
        let order: LaunchOrder

        init(_ line: String) throws {
            directory = try TemporaryDirectory()
            pair = try Pair()
            try pair.say(line + "\n")
            var specification = LaunchSpecification(
                arguments: ["/bin/sh", "-c", "head -n 1 <&3; ls -m /proc/$$/fd; true"])
            specification.output = directory.file("output")
            var order = LaunchOrder(specification, as: try .own())
            order.sockets = [.init(pair.theirs, name: "")]
            self.order = order
        }

        deinit { pair.close() }

        var output: String { (try? String(contentsOfFile: directory.file("output"), encoding: .utf8)) ?? "" }
    }

    private func run(_ launch: inout Launch) throws {
        #expect(try Launched.exitStatus(of: launch.process) == .exited(0))
        #expect(launch.outcome(isOver: true) == .runs)
    }

    @Test("Changes of a descriptor after the launch has begun do not matter")
    func replaced() throws {
        let slots = try LaunchSlots(count: 4)
        for number in 0..<50 {
            let reader = try Reader("line \(number)"), other = try Reader("another")
            var launch = try Launch.prepare(reader.order, slots)
            #expect(dup2(other.pair.theirs, reader.pair.theirs) >= 0)
            launch.letRun()
            try run(&launch)
            #expect(reader.output == "line \(number)\n0, 1, 2, 3\n")
            #expect(slots.freeCount == 4)
        }
    }

    @Test("More launches than there are slots for, at once")
    func tooFew() throws {
        let slots = try LaunchSlots(count: 5)
        let readers = try (0..<3).map { try Reader("line \($0)") }
        var first = try Launch.prepare(readers[0].order, slots)
        var second = try Launch.prepare(readers[1].order, slots)
        #expect(slots.freeCount == 1)
        var third = try Launch.prepare(readers[2].order, slots)
        #expect(slots.freeCount == 1)
        third.letRun()
        second.letRun()
        first.letRun()
        try run(&third)
        try run(&second)
        try run(&first)
        for (number, reader) in readers.enumerated() {
            #expect(reader.output == "line \(number)\n0, 1, 2, 3\n")
        }
        #expect(slots.freeCount == 5)
    }

    @Test("A failure is reported, and frees the slots", arguments: ["/nonexistent", "/etc/passwd"])
    func failure(program: String) throws {
        let slots = try LaunchSlots(count: 1)
        var launch = try Launch.begin(
            LaunchOrder(LaunchSpecification(arguments: [program]), as: try .own()), slots)
        guard case .failed(let error) = try Launched.outcome(of: &launch) else {
            Issue.record("it ran")
            return
        }
        #expect(error.step == .program)
        #expect(slots.freeCount == 1)
        #expect(try Launched.exitStatus(of: launch.process) == .exited(127))
    }

    @Test("A process that is killed at any moment frees the slots")
    func killed() throws {
        let slots = try LaunchSlots(count: 2)
        for _ in 0..<100 {
            let reader = try Reader("line")
            var launch = try Launch.prepare(reader.order, slots)
            #expect(slots.freeCount == 0)
            try launch.process.signal(SIGKILL)
            #expect(try Launched.exitStatus(of: launch.process) == .signalled(SIGKILL))
            #expect(launch.outcome(isOver: true) == .runs)
            #expect(slots.freeCount == 2)
        }
    }

    @Test("A launch that is given up frees the slots")
    func givenUp() throws {
        let slots = try LaunchSlots(count: 1)
        let order = LaunchOrder(LaunchSpecification(arguments: ["/bin/sleep", "1000"]), as: try .own())
        for _ in 0..<20 {
            do { _ = try Launch.begin(order, slots) }
            #expect(slots.freeCount == 1)
        }
    }

    @Test("A descriptor that is not open is an error, and nothing stays in the slots")
    func notOpen() throws {
        let slots = try LaunchSlots(count: 4)
        let pair = try Pair()
        defer { close(pair.ours) }
        var order = LaunchOrder(LaunchSpecification(arguments: ["/bin/true"]), as: try .own())
        order.sockets = [.init(pair.theirs, name: ""), .init(1_000_000, name: "")]
        for _ in 0..<3 {
            #expect(throws: (any Error).self) { _ = try Launch.prepare(order, slots) }
            #expect(slots.freeCount == 4)
        }
        close(pair.theirs)
        // A process that another test is starting has it for a moment.
        #expect(
            eventually {
                var byte: UInt8 = 0
                return recv(pair.ours, &byte, 1, CInt(MSG_DONTWAIT)) == 0
            }, "a slot holds a duplicate")
    }
}
