import Keeper
package import Launching

/// What the recipes of many clients have in common: all but what each has to itself, and for a whole fleet as a rule the
/// same. There is one object of it, and the keeper has one record, however many use it.
package final class LaunchSetting {
    package struct Content: Equatable {
        package var isRecorded: Bool
        package var program: String
        package var directory: String
        package var environment: [String: String]
        package var limits: [ResourceLimit]
        package var fileModeMask: UInt32
        package var identity: ProcessIdentity?

        package init(
            isRecorded: Bool, program: String, directory: String, environment: [String: String] = [:],
            limits: [ResourceLimit] = [], fileModeMask: UInt32 = 0, identity: ProcessIdentity? = nil
        ) {
            self.isRecorded = isRecorded
            self.program = program
            self.directory = directory
            self.environment = environment
            self.limits = limits
            self.fileModeMask = fileModeMask
            self.identity = identity
        }
    }

    /// As the keeper keeps it. Two with the same content have the same.
    let record: [UInt8]
    /// What it is called in the records of clients; 0: it is in none.
    package fileprivate(set) var number: UInt64
    /// How many clients are launched like this.
    package fileprivate(set) var users = 0

    package init(_ content: Content) {
        record = Self.bytes(of: content)
        number = 0
    }

    init(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) {
        _ = try Self.decode(record, key)
        self.record = record
        number = key.id
    }

    package var content: Content {
        do throws(RecordError) {
            return try Self.decode(record, RecordKey.setting(number))
        } catch {
            preconditionFailure("we have encoded it ourselves, or tried it: \(error)")
        }
    }
}

/// The settings that clients share, each with a number that the records of clients name it by.
package struct LaunchSettings {
    /// By what they say.
    private var settings: [[UInt8]: LaunchSetting] = [:]
    private var nextNumber: UInt64 = 1
    /// Those that somebody has ceased to use.
    private var left: [LaunchSetting] = []

    package init() {}

    /// The one that says the same; true: there was none, and it has a number now, which nobody was told yet.
    package mutating func share(_ setting: LaunchSetting) -> (LaunchSetting, isNew: Bool) {
        if let known = settings[setting.record] { return (known, false) }
        setting.number = nextNumber
        nextNumber += 1
        settings[setting.record] = setting
        return (setting, true)
    }

    /// Those of the worker before; who uses them is told of later.
    package mutating func inherit(_ settings: some Collection<LaunchSetting>) {
        for setting in settings {
            self.settings[setting.record] = setting
            nextNumber = max(nextNumber, setting.number + 1)
            left.append(setting)
        }
    }

    /// Another client uses it.
    package func enter(_ setting: LaunchSetting) { setting.users += 1 }

    /// A client does not use it any more.
    package mutating func leave(_ setting: LaunchSetting) {
        setting.users -= 1
        if setting.users == 0 { left.append(setting) }
    }

    /// The numbers of those that nobody uses any more, which are forgotten. To be asked when all that is known of
    /// clients has been said: then no record names them.
    package mutating func takeUnused() -> [UInt64] {
        guard !left.isEmpty else { return [] }
        var numbers: [UInt64] = []
        for setting in left where setting.users == 0 && setting.number != 0 {
            numbers.append(setting.number)
            if settings[setting.record] === setting { settings[setting.record] = nil }
            // Once is enough, however often it was left.
            setting.number = 0
        }
        left.removeAll()
        return numbers
    }
}
