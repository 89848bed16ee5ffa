import Descriptors
import Keeper
import Launching
import NightbellWire
import SwiftProtobuf

/// How a client is started, and as whom: what it has in common with others, and what is its own.
struct LaunchRecipe {
    var setting: LaunchSetting
    /// Its arguments but for the first, and its output. Encoded, because it is seldom needed and takes less room like
    /// that.
    let own: [UInt8]

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
        own = Self.bytes(arguments: launch.arguments.dropFirst(), output: launch.output)
    }

    /// - Parameter own: what can be decoded.
    init(_ setting: LaunchSetting, own: [UInt8]) {
        self.setting = setting
        self.own = own
    }

    var specification: LaunchSpecification {
        let content = setting.content
        do throws(RecordError) {
            let (arguments, output) = try Self.decode(own, RecordKey(kind: RecordKey.clients, id: 0))
            return LaunchSpecification(
                arguments: [content.program] + arguments, directory: content.directory,
                environment: content.environment, limits: content.limits, fileModeMask: content.fileModeMask,
                output: output)
        } catch {
            preconditionFailure("we have encoded it ourselves, or tried it: \(error)")
        }
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
        if let identity = setting.content.identity { return LaunchOrder(specification, as: identity) }
        return LaunchOrder(specification, as: try .own())
    }
}

extension LaunchSpecification {
    init(_ wire: WireLaunchSpecification) {
        self.init(arguments: wire.arguments, directory: wire.directory, environment: wire.environment)
    }
}
