-- The two tables as the Python package gemstone_utils creates them, so that
-- whichever side comes first, both stand in one election.
CREATE TABLE IF NOT EXISTS gemstone_election_candidate (
    ns VARCHAR(255) NOT NULL,
    candidate_id VARCHAR(36) NOT NULL,
    last_heartbeat_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (ns, candidate_id)
);
CREATE TABLE IF NOT EXISTS gemstone_election_leader (
    ns VARCHAR(255) NOT NULL,
    leader_id VARCHAR(36),
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (ns)
);
