import NightbellWire

/// Processes with media that plays or is recorded: by PipeWire and, as a weaker witness, by MPRIS on the
/// session's bus.
final class AudioSource: Source {
    private let context: SourceContext
    private var streams: PipeWireStreams?
    private var players: MediaPlayers?

    init(_ context: SourceContext) {
        self.context = context
        guard context.configuration.isSession else {
            context.reports.setAvailability(
                .audio, reason: "media belongs to a session, and this monitor observes none")
            return
        }
        streams = PipeWireStreams(context.loop, directory: context.configuration.runtimeDirectory) {
            [unowned self] in report()
        }
        players = MediaPlayers(context.buses.session(), context.loop) { [unowned self] in report() }
        report()
    }

    func update(_ demand: WireMonitorDemand) {}

    private func report() {
        // Neither of them has said anything while the first is being made.
        guard let streams, let players else { return }
        let streaming = streams.processes
        guard streaming != nil || players.isConnected else {
            // One of them may be there.
            if streams.isConnecting || players.isConnecting { return }
            var absence = players.absence
            absence.reason = "PipeWire is not running; \(absence.reason)"
            return context.reports.setAbsent(.audio, absence)
        }
        context.reports.setAvailability(.audio, reason: nil)
        var audio = WireMonitorReport.Audio()
        audio.isPipewireThere = streaming != nil
        audio.streaming = (streaming ?? []).sorted()
        audio.playing = players.playing.sorted()
        context.reports.report(.audio, .audio(audio))
    }
}
