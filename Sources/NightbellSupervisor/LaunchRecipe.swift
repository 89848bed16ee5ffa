import Descriptors
import Keeper
import Launching
import NightbellWire
import SwiftProtobuf

/// How a client is started, and as whom: what it has in common with others, and what is its own.
struct LaunchRecipe {
    var setting: LaunchSetting
    /// `Own`, encoded, because it is seldom needed and takes less room like that.
    private(set) var own: [UInt8]

    struct Own {
        /// But for the first, which is the program.
        var arguments: [String]
        var output: String?
        var differences = LaunchDifferences()
    }

    /// - Parameters:
    ///   - identity: nil if the client is to run as whoever the supervisor runs as.
    ///   - isRecorded: whether a process of this client has said that it was started like this itself. It runs as
    ///     whoever that was: that is the kernel's word.
    init(_ launch: LaunchSpecification, as identity: ProcessIdentity?, isRecorded: Bool) {
        let content = LaunchSetting.Content(
            isRecorded: isRecorded, program: launch.arguments.first ?? "", directory: launch.directory,
            environment: launch.environment, limits: launch.limits, fileModeMask: launch.fileModeMask,
            identity: identity)
        setting = LaunchSetting(content)
        own = Own(arguments: Array(launch.arguments.dropFirst()), output: launch.output).bytes
    }

    /// - Parameter own: what can be decoded.
    init(_ setting: LaunchSetting, own: [UInt8]) {
        self.setting = setting
        self.own = own
    }

    private var decodedOwn: Own {
        do throws(RecordError) {
            return try Own(RecordKey(kind: RecordKey.clients, id: 0), own)
        } catch {
            preconditionFailure("we have encoded it ourselves, or tried it: \(error)")
        }
    }

    /// What it has in common with others, as it is for this client.
    var content: LaunchSetting.Content { setting.content.with(decodedOwn.differences) }

    var specification: LaunchSpecification {
        let (content, own) = (content, decodedOwn)
        return LaunchSpecification(
            arguments: [content.program] + own.arguments, directory: content.directory,
            environment: content.environment, limits: content.limits, fileModeMask: content.fileModeMask,
            output: own.output)
    }

    /// With a setting that others use, and its own differences from that, if there is one that is near enough; true: there
    /// was none, its setting has a number now, and nobody was told of that yet.
    mutating func share(_ settings: inout LaunchSettings) -> Bool {
        if let (relative, differences) = settings.relative(of: setting) {
            setting = relative
            var own = decodedOwn
            own.differences = differences
            self.own = own.bytes
            return false
        }
        let isNew: Bool
        (setting, isNew) = settings.share(setting)
        return isNew
    }

    /// As it is shown.
    var wire: WireLaunchSpecification {
        let launch = specification
        return WireLaunchSpecification.with {
            $0.arguments = launch.arguments
            $0.directory = launch.directory
            $0.environment = launch.environment
        }
    }

    /// What is to be launched, without what it takes over.
    func order() throws(SystemError) -> LaunchOrder {
        if let identity = content.identity { return LaunchOrder(specification, as: identity) }
        return LaunchOrder(specification, as: try .own())
    }
}

extension LaunchSpecification {
    init(_ wire: WireLaunchSpecification) {
        self.init(arguments: wire.arguments, directory: wire.directory, environment: wire.environment)
    }
}
