import Keeper
import Launching
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// How a client is started, and with which identity: a shared setting and the client's own part.
struct LaunchRecipe {
    var setting: LaunchSetting
    /// `Own`, encoded: it is seldom needed and takes less memory this way.
    private(set) var own: [UInt8]

    struct Own {
        /// Without the first, which is the program.
        var arguments: [String]
        var output: String?
        var differences = LaunchDifferences()
    }

    /// - Parameters:
    ///   - identity: nil if the client is to run with the supervisor's own identity.
    ///   - isRecorded: whether a process of this client said that it was started like this itself. Its
    ///     identity is then that process's, as the kernel tells it.
    init(_ launch: LaunchSpecification, as identity: ProcessIdentity?, isRecorded: Bool) {
        let content = LaunchSetting.Content(
            isRecorded: isRecorded, program: launch.arguments.first ?? "", directory: launch.directory,
            environment: launch.environment, limits: launch.limits, fileModeMask: launch.fileModeMask,
            identity: identity)
        setting = LaunchSetting(content)
        own = Own(arguments: Array(launch.arguments.dropFirst()), output: launch.output).bytes
    }

    /// - Parameter own: bytes that are known to decode.
    init(_ setting: LaunchSetting, own: [UInt8]) {
        self.setting = setting
        self.own = own
    }

    private var decodedOwn: Own {
        do throws(RecordError) {
            return try Own(RecordKey(.clients, id: 0), own)
        } catch {
            preconditionFailure("we have encoded it ourselves, or tried it: \(error)")
        }
    }

    /// The shared content with this client's differences applied.
    var content: LaunchSetting.Content { setting.content.with(decodedOwn.differences) }

    var specification: LaunchSpecification { decoded.specification }

    /// Both, decoded once.
    private var decoded: (content: LaunchSetting.Content, specification: LaunchSpecification) {
        let own = decodedOwn
        let content = setting.content.with(own.differences)
        let specification = LaunchSpecification(
            arguments: [content.program] + own.arguments, directory: content.directory,
            environment: content.environment, limits: content.limits, fileModeMask: content.fileModeMask,
            output: own.output)
        return (content, specification)
    }

    /// Replaces its setting by a shared one, with differences if one is near enough. Returns true if there
    /// was none: its setting now has a number, which has not been recorded yet.
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
    var wire: WireLaunchSpecification { WireLaunchSpecification(specification) }

    /// The order to launch it, without the descriptors to be inherited, and whether a process of this client
    /// has recorded how it is launched.
    func order() throws(SystemError) -> (order: LaunchOrder, isRecorded: Bool) {
        let (content, specification) = decoded
        let identity = if let identity = content.identity { identity } else { try ProcessIdentity.own() }
        return (LaunchOrder(specification, as: identity), content.isRecorded)
    }
}

extension WireLaunchSpecification {
    init(_ launch: LaunchSpecification) {
        self.init()
        arguments = launch.arguments
        directory = launch.directory
        environment = launch.environment
    }
}

extension LaunchSpecification {
    init(_ wire: WireLaunchSpecification) {
        self.init(arguments: wire.arguments, directory: wire.directory, environment: wire.environment)
    }
}
