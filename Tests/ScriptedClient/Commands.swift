import Glibc
import LinuxSystem
import Nightbell

extension ScriptedClient {
    static let help = [
        "hello ID [voip] [audio] [socket=PATH] [terminate] [exits-on-suspend] [network-changes]",
        "[no-reconnect] [timeout=MS]",
        "goodbye",
        "connect-tcp PORT NAME", "listen-tcp NAME", "bind-udp NAME", "connected-udp PORT NAME",
        "connect-unix PATH NAME", "unix-pair NAME", "pipe NAME", "timer MS NAME", "open PATH NAME",
        "handover NAME voip|listener|device [survives] [encrypted] [profile=NAME interval=MS within=MS …]",
        "delegate NAME idle TAG | stanzas RECEIVED SENT", "delegatedState NAME", "keep-alive-option NAME",
        "write-hex NAME HEX", "read-hex NAME",
        "release NAME", "close NAME", "close-released NAME",
        "write NAME TEXT", "read NAME", "shutdown NAME", "background", "foreground", "keepalive MS",
        "fetch-interval MS|minimum|never", "fetch newData|noData|failed|-", "push-endpoint [NAME [KEY]]",
        "remove-push-endpoint [NAME]",
        "observe NAME significant|foreground|pushes", "observe NAME region LATITUDE LONGITUDE RADIUS",
        "observe NAME accessory|bluetooth|characteristic PATH",
        "transfers SESSION", "download SESSION NAME ADDRESS", "upload SESSION NAME DESCRIPTOR ADDRESS",
        "authorize SESSION NAME VALUE", "cancel-transfers SESSION", "transfer-tasks SESSION",
        "end-transfers SESSION", "keep-transfers DIRECTORY",
        "notify ID TITLE [after=MS] [repeats] [daily=HH:MM] [payload=TEXT] [action=KEY] [badge=NUMBER] [body=TEXT]",
        "cancel-notifications [ID …]", "badge NUMBER", "notifications",
        "stop-observing NAME", "clear-keepalive", "begin NAME", "end NAME", "remaining", "media",
        "auto-read on|off|hex",
        "auto-echo on|off", "task-in-wake on|off", "foreground-when-activated on|off", "not-idle NAME COUNT",
        "hang-prepare [MS]",
        "hang-wake [MS]",
        "hang-enter [MS]", "hang-keepalive [MS]", "hang-transfer [MS]", "unhang", "spin MS", "grow MIB",
        "lock PATH", "stop",
        "crash", "end-main-thread",
        "exit CODE", "echo TEXT", "save-state [TEXT]", "hibernate", "pid", "help",
    ]

    /// The text after `ok`.
    func perform(_ command: String, _ words: [String]) throws(Refusal) -> String {
        do {
            return try performCommand(command, words)
        } catch let error as NightbellError {
            throw Refusal(error)
        } catch let error as SystemError {
            throw Refusal(error)
        } catch let error as Refusal {
            throw error
        } catch {
            throw Refusal("unknown", "\(error)")
        }
    }

    private func performCommand(_ command: String, _ words: [String]) throws -> String {
        let arguments = Arguments(words)
        switch command {
        case "connect-tcp", "listen-tcp", "bind-udp", "connected-udp", "connect-unix", "unix-pair", "pipe",
            "timer", "open":
            return try openDescriptor(command, arguments)
        case "handover", "release", "close", "close-released", "write", "write-hex", "read", "read-hex",
            "shutdown":
            return try useDescriptor(command, arguments)
        case "auto-read", "auto-echo", "task-in-wake", "foreground-when-activated", "not-idle", "unhang":
            return try behave(command, arguments)
        case "transfers", "download", "upload", "authorize", "cancel-transfers", "transfer-tasks",
            "end-transfers":
            return try transfer(command, arguments)
        case "keep-transfers":
            let directory = try arguments.text(0)
            state.withLock { $0.keptIn = directory }
            return ""
        case "keep-alive-option":
            guard let options = TCPKeepAlive(of: try descriptor(try arguments.text(0))) else { return "none" }
            return (options.isOn ? "on" : "off")
                + " idle=\(options.idleSeconds) interval=\(options.intervalSeconds)"
                + " probes=\(options.probes) timeout=\(options.userTimeoutMilliseconds)"
        case "delegate", "delegatedState":
            return try delegateOrTell(command, arguments)
        case "spin", "grow", "lock", "stop", "crash", "end-main-thread", "exit":
            return try live(command, arguments)
        case "hang-prepare", "hang-wake", "hang-enter", "hang-keepalive", "hang-transfer":
            let moment = Moment(rawValue: String(command.dropFirst("hang-".count))) ?? .wake
            let milliseconds = words.isEmpty ? 3_600_000 : try arguments.number(0)
            state.withLock { $0.hangs[moment] = milliseconds }
            return ""
        case "echo": return words.joined(separator: " ")
        case "help": return Self.help.joined(separator: " | ")
        default: return try ask(command, arguments)
        }
    }

    // MARK: The supervisor

    private func ask(_ command: String, _ arguments: Arguments) throws -> String {
        switch command {
        case "hello": return try hello(arguments)
        case "goodbye": try client().close()
        case "background": try client().enterBackground()
        case "foreground": try client().enterForeground()
        case "keepalive":
            try client().setKeepAliveTimeout(.milliseconds(arguments.number(0))) { self.keepAlive() }
        case "fetch-interval":
            let interval: FetchInterval =
                switch try arguments.text(0) {
                case "minimum": .minimum
                case "never": .never
                default: .atLeast(.milliseconds(try arguments.number(0)))
                }
            try client().setMinimumFetchInterval(interval)
        case "fetch":
            let name = try arguments.text(0)
            state.withLock { state in
                state.fetchResult = FetchResult.allCases.first { "\($0)" == name }
            }
        case "push-endpoint":
            let key = arguments.words.count > 1 ? try Self.bytes(hex: try arguments.text(1)) : []
            return try client().pushEndpoint(arguments.words.first ?? "", applicationServerKey: key)
        case "remove-push-endpoint": try client().removePushEndpoint(arguments.words.first ?? "")
        case "observe": try client().observe(try arguments.text(0), try subject(arguments))
        case "notify": return try client().notifications.schedule(try notification(arguments)) ?? "-"
        case "cancel-notifications":
            let notifications = try client().notifications
            if arguments.words.isEmpty {
                try notifications.cancelAll()
            } else {
                try notifications.cancel(arguments.words)
            }
        case "badge": try client().notifications.setBadge(UInt32(clamping: try arguments.number(0)))
        case "notifications":
            let all = try client().notifications.list()
            return all.map { "\($0.notification.identifier):\($0.state)" }.joined(separator: ",")
        case "stop-observing": try client().stopObserving(try arguments.text(0))
        case "clear-keepalive": try client().clearKeepAliveTimeout()
        case "begin":
            let task = try client().beginBackgroundTask(arguments.text(0))
            try state.withLock { $0.tasks[try arguments.text(0)] = task }
            return "valid=\(task.isValid)"
        case "end":
            let name = try arguments.text(0)
            guard let task = state.withLock({ $0.tasks.removeValue(forKey: name) }) else {
                throw Refusal("usage", "no task is named \(name)")
            }
            try client().end(task)
        case "remaining":
            switch try client().backgroundTimeRemaining() {
            case .limited(let duration): return "remaining_ms=\(duration.milliseconds)"
            case .unlimited: return "unlimited"
            }
        case "media": try client().mediaActivity()
        case "save-state": try client().saveState(Array(arguments.words.joined(separator: " ").utf8))
        case "hibernate": try client().hibernate()
        case "pid": return String(processID)
        default: throw Refusal("usage", "no such command: \(command)")
        }
        return ""
    }

    private func notification(_ arguments: Arguments) throws -> LocalNotification {
        var notification = LocalNotification(try arguments.text(0), title: try arguments.text(1))
        let repeats = arguments.words.contains("repeats")
        for word in arguments.words.dropFirst(2) where word != "repeats" {
            let parts = word.split(separator: "=", maxSplits: 1).map(String.init)
            guard parts.count == 2 else { throw Refusal("usage", "notify: \(word)") }
            switch parts[0] {
            case "after":
                notification.trigger = .after(.milliseconds(Int(parts[1]) ?? 0), repeats: repeats)
            case "daily":
                let time = parts[1].split(separator: ":").compactMap { Int($0) }
                guard time.count == 2 else { throw Refusal("usage", "notify: \(word)") }
                notification.trigger = .at(.init(hour: time[0], minute: time[1]), repeats: repeats)
            case "payload": notification.payload = Array(parts[1].utf8)
            case "action": notification.actions.append(.init(key: parts[1], label: parts[1]))
            case "badge": notification.badge = UInt32(parts[1])
            case "body": notification.body = parts[1]
            default: throw Refusal("usage", "notify: \(word)")
            }
        }
        return notification
    }

    private func subject(_ arguments: Arguments) throws -> Subject {
        switch try arguments.text(1) {
        case "significant": .significantLocationChange
        case "foreground": .foregroundLocation()
        case "region":
            .region(
                latitude: Double(try arguments.text(2)) ?? 0, longitude: Double(try arguments.text(3)) ?? 0,
                radius: Double(try arguments.text(4)) ?? 0)
        case "accessory": .accessory(path: try arguments.text(2))
        case "bluetooth": .bluetoothDevice(path: try arguments.text(2))
        case "characteristic": .characteristic(path: try arguments.text(2))
        case "pushes": .pushes
        default: throw Refusal("usage", "no such subject")
        }
    }

    private func hello(_ arguments: Arguments) throws -> String {
        var configuration = Client.Configuration(identifier: try arguments.text(0), modes: [])
        var handlers = handlers()
        for word in arguments.words.dropFirst() {
            if let mode = Mode(rawValue: word) {
                configuration.modes.insert(mode)
            } else if word.hasPrefix("socket=") {
                configuration.socketPath = String(word.dropFirst("socket=".count))
            } else if word.hasPrefix("timeout="), let milliseconds = Int(word.dropFirst("timeout=".count)) {
                configuration.requestTimeout = .milliseconds(milliseconds)
            } else if word == "network-changes" {
                handlers.networkChanged = { lost in
                    let names = lost.map(\.name).joined(separator: ",")
                    self.say("network-changed lost=\(names.isEmpty ? "-" : names)")
                }
            } else if word == "exits-on-suspend" {
                configuration.exitsOnSuspend = true
            } else if word == "terminate" {
                configuration.wakeLimitPolicy = .terminate
            } else if word == "no-reconnect" {
                configuration.reconnects = false
            } else {
                throw Refusal("usage", "hello: \(word)")
            }
        }
        let client = try Client(configuration, handlers: handlers)
        state.withLock { $0.client = client }
        return "suspension=\(client.suspensionMethod) "
            + "minimum_keepalive_ms=\(client.minimumKeepAliveTimeout.milliseconds)"
    }

    // MARK: Descriptors

    private func useDescriptor(_ command: String, _ arguments: Arguments) throws -> String {
        let name = try arguments.text(0)
        switch command {
        case "handover":
            guard let tag = SocketTag(rawValue: try arguments.text(1)) else {
                throw Refusal("usage", "voip, listener or device")
            }
            let parked = try client().handOver(
                descriptor(name), as: tag, name: name,
                survives: arguments.words.dropFirst(2).contains("survives"),
                profile: try profile(arguments.words), isEncrypted: arguments.words.contains("encrypted"))
            state.withLock { $0.parked[name] = parked }
        case "release":
            try client().release(parked(name))
            state.withLock { $0.parked[name] = nil }
        case "close-released":
            try client().close(socket: parked(name))
            state.withLock {
                $0.parked[name] = nil
                $0.descriptors[name] = nil
            }
        case "close":
            _ = try systemCall("close") { [descriptor = try descriptor(name)] in close(descriptor) }
            state.withLock { $0.descriptors[name] = nil }
        case "write":
            let bytes = Array(arguments.words.dropFirst().joined(separator: " ").utf8)
            let descriptor = try descriptor(name)
            return "\(try systemCall("write") { write(descriptor, bytes, bytes.count) })"
        case "write-hex":
            let bytes = try Self.bytes(hex: try arguments.text(1))
            let descriptor = try descriptor(name)
            return "\(try systemCall("write") { write(descriptor, bytes, bytes.count) })"
        case "read-hex":
            // Waits, but not for ever.
            let descriptor = try descriptor(name)
            guard Poll.wait(descriptor, for: .readable, timeoutMilliseconds: 10_000).contains(.readable)
            else {
                return "nothing"
            }
            var bytes = [UInt8](repeating: 0, count: 4_096)
            let count = try systemCall("read") { read(descriptor, &bytes, bytes.count) }
            return Self.hex(bytes[..<count])
        case "read":
            let descriptor = try descriptor(name)
            guard Poll.now(descriptor).contains(.readable) else { return "nothing" }
            _ = readOnce(descriptor, name)
        case "shutdown":
            _ = try systemCall("shutdown") { [descriptor = try descriptor(name)] in
                shutdown(descriptor, CInt(SHUT_WR))
            }
        default: throw Refusal("usage", "no such command: \(command)")
        }
        return ""
    }

    // MARK: Behaviour

    private func behave(_ command: String, _ arguments: Arguments) throws -> String {
        switch command {
        case "auto-read":
            let tells = try arguments.text(0) == "hex"
            let on = try tells || arguments.isOn(0)
            state.withLock { ($0.readsByItself, $0.tellsContents) = (on, tells) }
        case "auto-echo":
            let on = try arguments.isOn(0)
            state.withLock { $0.echoes = on }
        case "task-in-wake":
            let on = try arguments.isOn(0)
            state.withLock { $0.beginsTaskInWake = on }
        case "foreground-when-activated":
            let on = try arguments.isOn(0)
            state.withLock { $0.foregroundsWhenActivated = on }
        case "not-idle":
            let (name, count) = (try arguments.text(0), try arguments.number(1))
            state.withLock { $0.notIdle[name] = count }
        case "unhang":
            state.withLock {
                $0.releases += 1
                $0.hangs = [:]
            }
            state.changed()
        default: throw Refusal("usage", "no such command: \(command)")
        }
        return ""
    }

    private func live(_ command: String, _ arguments: Arguments) throws -> String {
        switch command {
        case "spin":
            let end = BootClock.now() + Int64(try arguments.number(0)) * 1_000_000
            while BootClock.now() < end {}
        case "grow":
            let bytes = try arguments.number(0) << 20
            let memory = UnsafeMutableRawPointer.allocate(byteCount: bytes, alignment: 4_096)
            memset(memory, 1, bytes)
        case "lock":
            let file = try OwnedDescriptor(opening: try arguments.text(0), O_RDWR | O_CREAT, mode: 0o600)
            let descriptor = file.rawValue
            _ = try systemCall("flock") { flock(descriptor, LOCK_EX | LOCK_NB) }
            // The descriptor stays open, and with it the lock.
            let name = try "lock:" + arguments.text(0)
            let kept = file.take()
            state.withLock { $0.descriptors[name] = kept }
        case "stop": raise(SIGSTOP)
        case "crash": abort()
        case "end-main-thread":
            say("ok")
            let code = Thread.start {
                Main.serve(self)
                exit(0)
            }
            guard code == 0 else { throw Refusal(SystemError(code: code, call: "pthread_create")) }
            pthread_exit(nil)
        case "exit": exit(CInt(try arguments.number(0)))
        default: throw Refusal("usage", "no such command: \(command)")
        }
        return ""
    }
}

/// The words of a command.
struct Arguments {
    let words: [String]

    init(_ words: [String]) { self.words = words }

    func text(_ index: Int) throws(Refusal) -> String {
        guard index < words.count else { throw Refusal("usage", "word \(index + 1) is missing") }
        return words[index]
    }

    func number(_ index: Int) throws(Refusal) -> Int {
        guard let number = Int(try text(index)), number >= 0 else {
            throw Refusal("usage", "\(words[index]) is no number")
        }
        return number
    }

    func port(_ index: Int) throws(Refusal) -> UInt16 {
        guard let port = UInt16(try text(index)) else { throw Refusal("usage", "\(words[index]) is no port") }
        return port
    }

    func isOn(_ index: Int) throws(Refusal) -> Bool { try text(index) == "on" }
}
