import CLinux
import Glibc
import LinuxSystem

/// The system call that a thread is blocked in, from `/proc/PID/task/TID/syscall`.
package struct BlockedCall: Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        case epoll
        case poll
        case select
        case read
        case write
        case accept
        case futex
        case sleep
        case child
        case signal
        /// One of the calls with a timeout, which the kernel goes on with after a stop: its arguments are
        /// lost.
        case restarted
        /// `io_uring` or the older interface for asynchronous input and output.
        case ring
        /// The number of the call.
        case other(Int)
    }

    /// When the call ends by itself.
    package enum Timeout: Sendable, Hashable {
        case never
        case after(Duration)
        /// A `timespec` or `timeval` in the memory of the process: a time from the beginning of the call, or
        /// with `clock` the time of that clock at which it ends.
        case atAddress(UInt64, unit: Unit, clock: CInt? = nil)
        case unknown

        package enum Unit: Int64, Sendable, Hashable {
            case nanoseconds = 1
            case microseconds = 1_000
        }
    }

    /// Descriptors in the memory of the process.
    package enum List: Sendable, Hashable {
        /// An array of `struct pollfd`.
        case entries(UInt64, count: Int)
        /// Sets of bits for descriptors below `count`: to read, to write and with exceptions. 0: there is
        /// none.
        case sets([UInt64], count: Int)
    }

    package var kind: Kind
    /// The epoll set, or the descriptor that is read, written or accepted from.
    package var descriptor: CInt?
    package var list: List?
    package var timeout: Timeout
    /// As the kernel shows them: a thread that goes on with the same ones may still be in the same call.
    package private(set) var number = 0
    package private(set) var arguments: [UInt64] = []

    init(_ kind: Kind, descriptor: UInt64? = nil, list: List? = nil, timeout: Timeout = .never) {
        self.kind = kind
        self.descriptor = descriptor.map { CInt(truncatingIfNeeded: $0) }
        self.list = list
        self.timeout = timeout
    }

    /// - Parameter arguments: six, in the order of the call.
    init(number: Int, arguments: [UInt64]) {
        func timespec(_ index: Int, clock: CInt? = nil) -> Timeout {
            arguments[index] == 0 ? .never : .atAddress(arguments[index], unit: .nanoseconds, clock: clock)
        }
        defer {
            self.number = number
            self.arguments = arguments
        }
        func milliseconds(_ index: Int) -> Timeout {
            let value = CInt(truncatingIfNeeded: arguments[index])
            return value < 0 ? .never : .after(.milliseconds(value))
        }
        let entries = List.entries(arguments[0], count: Int(truncatingIfNeeded: arguments[1] & 0xffff_ffff))
        let sets = List.sets(
            Array(arguments[1...3]), count: Int(truncatingIfNeeded: arguments[0] & 0x7fff_ffff))
        switch clinux_blocking_call(number) {
        case clinux_call_epoll_milliseconds:
            self.init(.epoll, descriptor: arguments[0], timeout: milliseconds(3))
        case clinux_call_epoll_timespec: self.init(.epoll, descriptor: arguments[0], timeout: timespec(3))
        case clinux_call_poll_milliseconds: self.init(.poll, list: entries, timeout: milliseconds(2))
        case clinux_call_poll_timespec: self.init(.poll, list: entries, timeout: timespec(2))
        case clinux_call_select_timeval:
            let timeout: Timeout =
                arguments[4] == 0 ? .never : .atAddress(arguments[4], unit: .microseconds)
            self.init(.select, list: sets, timeout: timeout)
        case clinux_call_select_timespec: self.init(.select, list: sets, timeout: timespec(4))
        case clinux_call_read: self.init(.read, descriptor: arguments[0])
        case clinux_call_write: self.init(.write, descriptor: arguments[0])
        case clinux_call_accept: self.init(.accept, descriptor: arguments[0])
        case clinux_call_futex:
            self.init(.futex, timeout: timespec(3, clock: Self.clock(ofFutex: arguments[1])))
        case clinux_call_futex_vector:
            self.init(.futex, timeout: timespec(3, clock: CInt(truncatingIfNeeded: arguments[4])))
        case clinux_call_nanosleep: self.init(.sleep, timeout: timespec(0))
        case clinux_call_clock_nanosleep:
            let clock = CInt(truncatingIfNeeded: arguments[0])
            let isAbsolute = arguments[1] & UInt64(TIMER_ABSTIME) != 0
            // Other clocks, such as a process's own, do not go on while it is frozen.
            let isShared = [CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME].contains(clock)
            self.init(.sleep, timeout: isShared ? timespec(2, clock: isAbsolute ? clock : nil) : .unknown)
        case clinux_call_child: self.init(.child)
        case clinux_call_signal: self.init(.signal)
        case clinux_call_timed_signal: self.init(.signal, timeout: timespec(2))
        case clinux_call_restart: self.init(.restarted, timeout: .unknown)
        case clinux_call_ring: self.init(.ring, timeout: .unknown)
        default: self.init(.other(number), timeout: .unknown)
        }
    }
}

extension BlockedCall {
    /// The clock of the time at which a wait for a futex ends; nil: it ends after a time. See futex(2).
    private static func clock(ofFutex operation: UInt64) -> CInt? {
        enum Command {
            static let lockPI: UInt64 = 6
            static let waitBitset: UInt64 = 9
            static let waitRequeuePI: UInt64 = 11
            static let lockPI2: UInt64 = 13
        }
        switch operation & 0x7f {
        case Command.lockPI: return CLOCK_REALTIME
        case Command.waitBitset, Command.waitRequeuePI, Command.lockPI2:
            return operation & 0x100 != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC
        default: return nil
        }
    }

    /// Whether a stop may make it return with a part of what it reads or writes.
    package func mayBeCutShort(isPipe: Bool) -> Bool {
        guard arguments.count == 6 else { return false }
        return unsafe clinux_may_be_cut_short(number, arguments, isPipe ? 1 : 0) != 0
    }

    /// The timeout in the memory of the process of a call that a stop prolongs: the kernel writes there how
    /// much is left of it when the stop begins, and goes on with that when it ends.
    package var prolongedTimeout: (address: UInt64, unit: Timeout.Unit)? {
        guard kind == .poll || kind == .select, case .atAddress(let address, let unit, nil) = timeout else {
            return nil
        }
        return (address, unit)
    }
}

/// The state of a thread at one moment.
package enum ThreadState: Sendable, Hashable {
    case runs
    /// In the kernel without a system call, as for a page that is being read.
    case inKernel
    case blocked(BlockedCall)

    /// Parses `/proc/PID/task/TID/syscall`: `running`, or a number, six arguments and two addresses.
    package init?(_ text: [UInt8]) {
        var fields = ByteFields(text)
        guard let first = fields.next() else { return nil }
        if first.elementsEqual("running".utf8) {
            self = .runs
            return
        }
        if first.first == UInt8(ascii: "-") {
            self = .inKernel
            return
        }
        let arguments = fields.restOfLine().prefix(6).compactMap { field in
            field.starts(with: "0x".utf8) ? ByteFields.number(field.dropFirst(2), radix: 16) : nil
        }
        guard let number = ByteFields.number(first), number <= UInt64(Int32.max), arguments.count == 6 else {
            return nil
        }
        self = .blocked(BlockedCall(number: Int(number), arguments: arguments))
    }
}
