import Keeper
package import Launching

/// The part that the recipes of many clients share: all but each client's own part, and the same for a whole
/// fleet as a rule. There is one object of it, and one record in the keeper, however many clients use it.
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

    /// The keeper's record. Settings with the same content have the same record.
    let record: [UInt8]
    /// Its number in the records of clients; 0: no record names it.
    package fileprivate(set) var number: UInt64
    /// The number of clients that are launched like this.
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

/// A client's differences from a setting that is otherwise the same.
struct LaunchDifferences: Equatable {
    /// nil: the same directory.
    var directory: String?
    var identity: ProcessIdentity?
    /// Variables with other values, or removed.
    var environment: [String: String?] = [:]
}

extension LaunchSetting.Content {
    /// The part that must be equal for two settings to differ by a `LaunchDifferences`.
    fileprivate var family: Self {
        var family = self
        family.directory = ""
        family.environment = [:]
        family.identity = identity.map { _ in ProcessIdentity(user: 0, group: 0, otherGroups: []) }
        return family
    }

    fileprivate func differences(from other: Self) -> LaunchDifferences {
        var differences = LaunchDifferences()
        if directory != other.directory { differences.directory = directory }
        if identity != other.identity { differences.identity = identity }
        for (name, value) in environment where other.environment[name] != value {
            differences.environment[name] = value
        }
        for name in other.environment.keys where environment[name] == nil {
            differences.environment.updateValue(nil, forKey: name)
        }
        return differences
    }

    func with(_ differences: LaunchDifferences) -> Self {
        var content = self
        if let directory = differences.directory { content.directory = directory }
        if let identity = differences.identity { content.identity = identity }
        for (name, value) in differences.environment { content.environment[name] = value }
        return content
    }
}

/// The settings that clients share, each with a number by which the records of clients name it.
package struct LaunchSettings {
    /// By their content.
    private var settings: [[UInt8]: LaunchSetting] = [:]
    /// The first of each family.
    private var eldest: [[UInt8]: LaunchSetting] = [:]
    private var nextNumber: UInt64 = 1
    /// Settings that a client has ceased to use.
    private var left: [LaunchSetting] = []

    package init() {}

    /// The setting with the same content; true: there was none, and this one now has a number that has not
    /// been recorded yet.
    package mutating func share(_ setting: LaunchSetting) -> (LaunchSetting, isNew: Bool) {
        if let known = settings[setting.record] { return (known, false) }
        setting.number = nextNumber
        nextNumber += 1
        settings[setting.record] = setting
        let family = LaunchSetting.bytes(of: setting.content.family)
        if eldest[family] == nil { eldest[family] = setting }
        return (setting, true)
    }

    /// A setting that is nearly the same; nil: there is none, or one that is the same.
    func relative(of setting: LaunchSetting) -> (LaunchSetting, LaunchDifferences)? {
        guard settings[setting.record] == nil else { return nil }
        let content = setting.content
        guard let eldest = eldest[LaunchSetting.bytes(of: content.family)] else { return nil }
        let differences = content.differences(from: eldest.content)
        return differences.byteCount < setting.record.count / 2 ? (eldest, differences) : nil
    }

    /// Takes over the previous worker's settings; their users are counted later.
    package mutating func inherit(_ settings: some Collection<LaunchSetting>) {
        for setting in settings {
            self.settings[setting.record] = setting
            eldest[LaunchSetting.bytes(of: setting.content.family)] = setting
            nextNumber = max(nextNumber, setting.number + 1)
            left.append(setting)
        }
    }

    /// Another client uses it.
    package func enter(_ setting: LaunchSetting) { setting.users += 1 }

    /// A client has ceased to use it.
    package mutating func leave(_ setting: LaunchSetting) {
        setting.users -= 1
        if setting.users == 0 { left.append(setting) }
    }

    /// The numbers of unused settings, which are forgotten. Call it when the records of all clients have been
    /// written: then none names them.
    package mutating func takeUnused() -> [UInt64] {
        guard !left.isEmpty else { return [] }
        var numbers: [UInt64] = []
        for setting in left where setting.users == 0 && setting.number != 0 {
            numbers.append(setting.number)
            if settings[setting.record] === setting { settings[setting.record] = nil }
            let family = LaunchSetting.bytes(of: setting.content.family)
            if eldest[family] === setting { eldest[family] = nil }
            // Return it once, however often its users left.
            setting.number = 0
        }
        left.removeAll()
        return numbers
    }
}
