import CLinux
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
        /// One of the calls with a timeout, which the kernel goes on with after a stop: its arguments are lost.
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
        /// A `timespec` or `timeval` in the memory of the process.
        case atAddress(UInt64, unit: Unit)
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
        /// Sets of bits, without those that are null, for descriptors below `count`.
        case sets([UInt64], count: Int)
    }

    package var kind: Kind
    /// The epoll set, or the descriptor that is read, written or accepted from.
    package var descriptor: CInt?
    package var list: List?
    package var timeout: Timeout

    init(_ kind: Kind, descriptor: UInt64? = nil, list: List? = nil, timeout: Timeout = .never) {
        self.kind = kind
        self.descriptor = descriptor.map { CInt(truncatingIfNeeded: $0) }
        self.list = list
        self.timeout = timeout
    }

    /// - Parameter arguments: six, in the order of the call.
    init(number: Int, arguments: [UInt64]) {
        func timespec(_ index: Int) -> Timeout {
            arguments[index] == 0 ? .never : .atAddress(arguments[index], unit: .nanoseconds)
        }
        func milliseconds(_ index: Int) -> Timeout {
            let value = CInt(truncatingIfNeeded: arguments[index])
            return value < 0 ? .never : .after(.milliseconds(value))
        }
        let entries = List.entries(arguments[0], count: Int(truncatingIfNeeded: arguments[1] & 0xffff_ffff))
        let sets = List.sets(
            arguments[1...3].filter { $0 != 0 }, count: Int(truncatingIfNeeded: arguments[0] & 0x7fff_ffff))
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
        case clinux_call_futex, clinux_call_futex_vector: self.init(.futex, timeout: timespec(3))
        case clinux_call_nanosleep: self.init(.sleep, timeout: timespec(0))
        case clinux_call_clock_nanosleep: self.init(.sleep, timeout: timespec(2))
        case clinux_call_child: self.init(.child)
        case clinux_call_signal: self.init(.signal)
        case clinux_call_timed_signal: self.init(.signal, timeout: timespec(2))
        case clinux_call_restart: self.init(.restarted, timeout: .unknown)
        case clinux_call_ring: self.init(.ring, timeout: .unknown)
        default: self.init(.other(number), timeout: .unknown)
        }
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
