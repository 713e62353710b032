-- The fencing token. It is never reset: the leader row outlives every leader.
ALTER TABLE gemstone_election_leader ADD COLUMN IF NOT EXISTS term BIGINT NOT NULL DEFAULT 0;

-- Who led when. Written only in the transaction that changes leadership.
CREATE TABLE IF NOT EXISTS gemstone_election_tenure (
    ns VARCHAR(255) NOT NULL,
    term BIGINT NOT NULL,
    leader_id VARCHAR(36) NOT NULL,
    began_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    ended_by VARCHAR(16),
    PRIMARY KEY (ns, term)
);

-- Free space on each page keeps a beat a heap-only update: no index is touched.
ALTER TABLE gemstone_election_leader SET (fillfactor = 50);
ALTER TABLE gemstone_election_candidate SET (fillfactor = 50);
