import Keeper
import Launching
import NightbellWire
import SwiftProtobuf

extension LaunchRecipe.Own {
    var bytes: [UInt8] {
        var stored = differences.stored
        stored.arguments = arguments
        if let output { stored.output = output }
        return stored.record
    }

    init(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) {
        let stored = try StoredLaunchRecipe(key, record)
        arguments = stored.arguments
        output = stored.hasOutput ? stored.output : nil
        differences = LaunchDifferences(stored)
    }
}

extension LaunchSetting {
    static func bytes(of content: Content) -> [UInt8] {
        StoredLaunchSetting.with {
            $0.isRecorded = content.isRecorded
            $0.program = content.program
            $0.directory = content.directory
            $0.environment = content.environment.sorted { $0.key < $1.key }.map { name, value in
                .with {
                    $0.name = name
                    $0.value = value
                }
            }
            $0.limits = content.limits.map { limit in
                .with {
                    $0.resource = limit.resource.rawValue
                    $0.soft = limit.soft
                    $0.hard = limit.hard
                }
            }
            $0.fileModeMask = content.fileModeMask
            if let identity = content.identity { $0.identity = identity.stored }
        }.record
    }

    static func decode(_ bytes: [UInt8], _ key: RecordKey) throws(RecordError) -> Content {
        let stored = try StoredLaunchSetting(key, bytes)
        var limits: [ResourceLimit] = []
        for limit in stored.limits {
            guard let resource = ResourceLimit.Resource(rawValue: limit.resource) else {
                throw RecordError(key: key, problem: "has an unknown limit")
            }
            limits.append(ResourceLimit(resource, soft: limit.soft, hard: limit.hard))
        }
        return Content(
            isRecorded: stored.isRecorded, program: stored.program, directory: stored.directory,
            environment: Dictionary(stored.environment.map { ($0.name, $0.value) }) { $1 },
            limits: limits, fileModeMask: stored.fileModeMask,
            identity: stored.hasIdentity ? ProcessIdentity(stored.identity) : nil)
    }
}

extension LaunchDifferences {
    /// Their size in a record.
    var byteCount: Int { stored.record.count }

    fileprivate var stored: StoredLaunchRecipe {
        .with {
            if let directory { $0.directory = directory }
            if let identity { $0.identity = identity.stored }
            $0.environment = environment.sorted { $0.key < $1.key }.map { name, value in
                .with {
                    $0.name = name
                    if let value { $0.value = value }
                }
            }
        }
    }

    fileprivate init(_ stored: StoredLaunchRecipe) {
        directory = stored.hasDirectory ? stored.directory : nil
        identity = stored.hasIdentity ? ProcessIdentity(stored.identity) : nil
        for variable in stored.environment {
            environment.updateValue(variable.hasValue ? variable.value : nil, forKey: variable.name)
        }
    }
}

extension ProcessIdentity {
    fileprivate var stored: StoredProcessIdentity {
        .with {
            $0.user = user
            $0.group = group
            $0.otherGroups = otherGroups
        }
    }

    fileprivate init(_ stored: StoredProcessIdentity) {
        self.init(user: stored.user, group: stored.group, otherGroups: stored.otherGroups)
    }
}
